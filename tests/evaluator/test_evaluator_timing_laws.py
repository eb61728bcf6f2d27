"""Laws of the figures: order of blocks, intervals, when to stop, and empty blocks."""

from __future__ import annotations

import itertools
import math
import random
from statistics import mean

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.evaluator.timing import block_randomization, intervals, timing_statistics
from actors.evaluator.timing.block_size import BlockSize
from actors.evaluator.timing.net_time import (
    BlockTimes,
    EmptyBlocks,
    ReferenceBlocks,
    TimedWindow,
)
from actors.evaluator.timing.timing_policy import POLICY
from actors.evaluator.timing.timing_statistics import SIDES, Side, TimedGroup
from protocol.values import MAX_SHOWN_GROUPS

LOGS = st.lists(st.floats(-3, 3), min_size=2, max_size=60)


def group(reference: float, candidate: float) -> TimedGroup:
    return TimedGroup(reference=(reference, reference), candidate=(candidate, candidate))


def test_each_side_follows_each_side_as_often_as_the_other() -> None:
    """Blocks after the candidate's were slower, and the reference had more of them: 64 %."""
    for _group in range(20):
        order = sum(block_randomization.group_order(), ())
        assert sorted(itertools.pairwise(order)) == sorted(itertools.product(SIDES, SIDES))


@pytest.mark.parametrize("long", SIDES)
def test_a_short_side_is_balanced_beside_a_long_one(long: Side) -> None:
    """Blocks of a candidate that is far faster are short: what they follow is much to them."""
    (short,) = {*SIDES} - {long}
    for _group in range(20):
        uncounted, counted = block_randomization.group_order({long})
        assert long not in uncounted  # it would take half a second or more
        pairs = list(itertools.pairwise(uncounted + counted))
        assert pairs.count((short, short)) == pairs.count((long, short)) == 1


def test_counted_blocks_come_in_the_order_a_b_b_a() -> None:
    """Each side has the same mean position in a group, so that a linear drift cancels."""
    seen = {block_randomization.group_order()[1] for _group in range(100)}
    r, c = SIDES
    assert seen == {(r, c, c, r), (c, r, r, c)}


@settings(max_examples=5)
@given(st.integers(0, 10**6), st.floats(0.9, 1.2), st.floats(0.9, 1.2))
def test_what_a_block_follows_favours_no_side(seed: int, after_own: float, beside: float) -> None:
    """Of a module against itself: outputs are compared after the candidate's blocks alone."""
    rng, logs = random.Random(seed), []
    for _group in range(600):
        order = sum(block_randomization.group_order(), ())
        sides: dict[str, list[float]] = {side: [] for side in SIDES}
        for before, side in itertools.pairwise(order):
            factor = (after_own if before == side else 1) * (beside if before == SIDES[1] else 1)
            sides[side].append(100 * factor * rng.gauss(1, 0.01))
        logs.append(sum(map(math.log, sides[SIDES[0]])) - sum(map(math.log, sides[SIDES[1]])))
    assert abs(mean(logs)) < 0.004


@given(
    st.floats(1, 1e6),
    st.floats(0.1, 10),
    st.floats(0.0, 0.01),
)
def test_a_steady_drift_does_not_move_the_ratio(us: float, ratio: float, drift: float) -> None:
    """A machine that slows down evenly within a group does not change the ratio."""
    speed = [1 + drift * place for place in range(4)]
    slowed = TimedGroup(
        reference=(us * speed[0], us * speed[3]),
        candidate=(us / ratio * speed[1], us / ratio * speed[2]),
    )
    assert math.isclose(slowed.log_ratio, math.log(ratio), abs_tol=1e-9)


@given(LOGS)
def test_the_interval_contains_the_median(values: list[float]) -> None:
    """The median of rounds is within its own interval."""
    found = intervals.median_interval(values)
    assert found is not None
    ranked = sorted(values)
    middle = (ranked[(len(ranked) - 1) // 2] + ranked[len(ranked) // 2]) / 2
    if len(values) > max(intervals.STUDENT_T_95):
        assert found[0] <= middle <= found[1]
    assert found[0] <= found[1]


@given(st.lists(st.tuples(*[st.floats(1e-3, 1e6)] * 4), min_size=2, max_size=20))
def test_the_reported_figures_are_in_their_interval(blocks: list[tuple[float, ...]]) -> None:
    """Whatever the blocks took: half of a candidate's may have taken no time at all."""
    groups = [TimedGroup(reference=each[:2], candidate=each[2:]) for each in blocks]
    timed = timing_statistics.timing_of(groups)
    low, high = timed.ci95 or (0.0, 0.0)
    assert low <= timed.speedup <= high
    assert low * (1 - 1e-9) <= timed.reference_us / timed.median_us <= high * (1 + 1e-9)


@settings(max_examples=10)
@given(st.integers(0, 10**6), st.sampled_from([3, 5, 6, 9, 20, 50]))
def test_the_interval_contains_the_true_ratio_in_95_of_100_cases(seed: int, count: int) -> None:
    """In 95 of 100 (99 for a verdict), less what chance allows, it is in the interval."""
    rng = random.Random(seed)
    contained = [0, 0]
    repetitions = 400
    for _repetition in range(repetitions):
        values = [rng.gauss(0.3, 0.05) for _ in range(count)]
        found = (intervals.median_interval(values) or (0, 0), intervals.symmetric_interval(values))
        for number, (low, high) in enumerate(found):
            contained[number] += low <= 0.3 <= high
    for times, share in zip(contained, (0.95, 0.99), strict=True):
        # Five standard deviations of a binomial below the share: rare misses are skewed.
        assert times / repetitions > share - 5 * math.sqrt(share * (1 - share) / repetitions)


def bursts(rng: random.Random, groups: int) -> list[list[float]]:
    """Return the times of the blocks of some groups, beside a program that comes and goes.

    Its turns and its pauses last for a block or for some groups, or it ends in the middle.
    """
    length, is_there = rng.choice([1, 2, 5, 20, 1000]), rng.random() < 0.5
    left = rng.uniform(0, length)
    times: list[float] = []
    for _block in range(4 * groups):
        left -= 1
        if left < 0:
            is_there, left = not is_there, rng.expovariate(1 / length)
        times.append(100 * rng.gauss(1, 0.02) * (rng.uniform(1.5, 2.5) if is_there else 1))
    return [times[first : first + 4] for first in range(0, len(times), 4)]


@settings(max_examples=5)
@given(st.integers(0, 10**6), st.sampled_from([4, 6, 8, 12]))
def test_a_program_that_comes_and_goes_moves_no_interval_off_the_truth(
    seed: int, count: int
) -> None:
    """Of a module against itself: the random order makes chance of whatever happens."""
    rng = random.Random(seed)
    off = []
    for _repetition in range(300):
        groups = []
        for times in bursts(rng, count):
            sides: dict[str, list[float]] = {"reference": [], "candidate": []}
            for side, us in zip(block_randomization.group_order()[1], times, strict=True):
                sides[side].append(us)
            groups.append(
                TimedGroup(
                    reference=tuple(sides["reference"]),  # type: ignore[arg-type]  # two blocks
                    candidate=tuple(sides["candidate"]),  # type: ignore[arg-type]
                )
            )
        low, high = timing_statistics.timing_of(groups).ci95 or (0.0, 0.0)
        off.append(max(low - 1, 1 - high, 0.0))
    assert sum(each > 0 for each in off) <= 0.02 * len(off) + 6
    assert sum(each > 0.03 for each in off) <= 0.005 * len(off) + 3


def beside_turns(rng: random.Random, work_ms: float) -> float:
    """Return the milliseconds of a block beside a program with which the card takes turns.

    What comes before the block's pause ends when a turn of the other program does.
    """
    theirs, ours = 2.4, 2.0
    begin = (theirs + 1e3 * block_randomization.pause_s(on_host=False) + rng.uniform(0, 0.2)) % (
        theirs + ours
    )
    waited = max(0.0, theirs - begin)
    first = ours - max(0.0, begin - theirs)
    return waited + work_ms + theirs * math.ceil(max(0.0, work_ms - first) / ours)


@settings(max_examples=5)
@given(st.integers(0, 10**6), st.sampled_from([(46, 52), (82, 82), (100, 135)]))
def test_turns_of_a_card_move_no_interval_off_the_truth(seed: int, calls: tuple[int, int]) -> None:
    """A block takes a turn more or less, and its random begin makes that chance.

    Blocks that began at the same moment of the turns had 19 % between two sides with blocks of 46
    and 52 calls of the same module, in all groups.
    """
    rng = random.Random(seed)
    off = []
    for _repetition in range(200):
        groups = []
        for _group in range(6):
            times = [
                tuple(1e3 * beside_turns(rng, 0.148 * count) / count for _block in range(2))
                for count in calls
            ]
            groups.append(TimedGroup(reference=times[0], candidate=times[1]))  # type: ignore[arg-type]  # two blocks
        low, high = timing_statistics.timing_of(groups).ci95 or (0.0, 0.0)
        off.append(max(low - 1, 1 - high, 0.0))
    assert sum(each > 0.03 for each in off) <= 0.01 * len(off) + 4


def test_one_group_has_no_interval() -> None:
    """A single group says nothing about the certainty of its ratio."""
    assert timing_statistics.timing_of([group(2.0, 1.0)]).ci95 is None


@given(st.lists(st.floats(0.5, 2.0), min_size=1, max_size=40))
def test_the_summary_is_the_median_of_ratios(ratios: list[float]) -> None:
    """One wild group does not move the reported speedup beyond the others."""
    groups = [group(ratio * 100, 100) for ratio in ratios]
    calm = timing_statistics.timing_of(groups)
    assert min(ratios) * 0.999 <= calm.speedup <= max(ratios) * 1.001
    assert math.isclose(calm.median_us, 100)


@given(st.integers(1, 500))
def test_the_shown_groups_are_the_ones_that_were_measured(count: int) -> None:
    """A verdict shows a bounded number of its groups, evenly chosen, both sides of each."""
    groups = [group(1000.0 + number, 500.0 + number) for number in range(count)]
    shown = timing_statistics.timing_of(groups).shown_groups
    pairs = list(zip(shown.reference_us, shown.candidate_us, strict=True))

    assert min(count, MAX_SHOWN_GROUPS // 2) <= len(pairs) <= MAX_SHOWN_GROUPS
    assert all(500.0 == reference - candidate for reference, candidate in pairs)
    assert sorted(pairs) == pairs
    assert (1000.0, 500.0) == pairs[0]


def test_it_stops_when_enough_is_known_or_time_is_up() -> None:
    """Narrow intervals end it early, but never before eight groups; time ends it after six."""
    steady = [group(200, 100)] * 40
    wild = [group(200 + 100 * (number % 7), 100) for number in range(44)]
    assert not timing_statistics.is_enough(steady[:7], 1.0, 20.0)
    assert timing_statistics.is_enough(steady[:8], 1.0, 20.0)
    assert not timing_statistics.is_enough(wild, 1.0, 20.0)
    assert timing_statistics.is_enough(wild, 20.0, 20.0)
    assert not timing_statistics.is_enough(steady[:2], 99.0, 20.0)


def test_a_candidate_that_is_clearly_behind_is_timed_roughly() -> None:
    """3 % are narrow enough below the task's best node, 10 % are not; a contender goes on."""

    def alternating(spread: float) -> list[TimedGroup]:
        return [group(200 * (1 + spread * (number % 2)), 100) for number in range(10)]

    three_percent, ten_percent = alternating(0.03), alternating(0.10)
    assert not timing_statistics.is_enough(three_percent, 1.0, 20.0)
    assert not timing_statistics.is_enough(three_percent, 1.0, 20.0, best_speedup=2.03)
    assert timing_statistics.is_enough(three_percent, 1.0, 20.0, best_speedup=2.3)
    assert not timing_statistics.is_enough(three_percent[:7], 1.0, 20.0, best_speedup=2.3)
    assert not timing_statistics.is_enough(ten_percent, 0.5, 20.0, best_speedup=2.4)
    # After a second its place is known well enough; that of one which may be the best is not.
    assert timing_statistics.is_enough(ten_percent, 1.0, 20.0, best_speedup=2.4)
    assert not timing_statistics.is_enough(ten_percent, 1.0, 20.0, best_speedup=2.1)
    assert not timing_statistics.is_enough(ten_percent[:7], 1.0, 20.0, best_speedup=2.4)


def test_a_first_look_ends_where_the_rest_of_its_time_would_not_tell_more() -> None:
    """Calls that are little more than launches vary by a tenth; of a winner all time is used."""
    wild = [group(200 + 20 * (number % 7), 100) for number in range(10)]
    calm = [group(200 + 2 * (number % 7), 100) for number in range(10)]
    assert not timing_statistics.is_enough(wild, 9.0, 20.0, best_speedup=2.3)
    assert timing_statistics.is_enough(wild, 10.0, 20.0, best_speedup=2.3)
    assert not timing_statistics.is_enough(wild[:9], 10.0, 20.0, best_speedup=2.3)
    assert not timing_statistics.is_enough(wild, 10.0, 20.0)
    assert not timing_statistics.is_enough(calm, 10.0, 20.0, best_speedup=2.1)


@given(st.floats(0, 100))
def test_a_block_is_long_enough_to_be_timed(call_s: float) -> None:
    """A block lasts 20 ms, or is one call, or is as many calls as are allowed."""
    calls = timing_statistics.calls_a_block(call_s)
    assert 1 <= calls <= timing_statistics.MAX_CALLS
    assert calls in (1, timing_statistics.MAX_CALLS) or calls * call_s >= POLICY.block_s


def disturbed(reference: float, candidate: float, share: float) -> TimedGroup:
    """A group in which each side waited for a processor for a share of its blocks."""
    return TimedGroup(
        reference=(reference, reference),
        candidate=(candidate, candidate),
        reference_wait_share=share,
        candidate_wait_share=share,
    )


def test_disturbed_groups_do_not_move_the_figures() -> None:
    """Groups with contention are left out, where enough calm groups are there."""
    calm = [group(200, 100)] * POLICY.enough_groups
    busy = [disturbed(900, 100, 0.5)] * 50
    mixed = timing_statistics.timing_of([*busy, *calm])
    assert math.isclose(mixed.speedup, 2.0)
    assert mixed.disturbed_groups == 50
    few = timing_statistics.timing_of([*busy, *calm[:3]])
    assert (few.disturbed_groups, few.busy_groups) == (0, 50)


@given(st.floats(1.0, 20.0), st.floats(1.0, 20.0), st.floats(0.1, 10.0), st.integers(3, 30))
def test_under_contention_the_interval_holds_the_quiet_ratio(
    ours: float, theirs: float, ratio: float, count: int
) -> None:
    """Whatever factor either side's calls are delayed by, the interval holds the true ratio."""
    groups = [
        TimedGroup(
            reference=(100 * theirs,) * 2,
            candidate=(100 / ratio * ours,) * 2,
            reference_wait_share=1 - 1 / theirs,
            candidate_wait_share=1 - 1 / ours,
        )
    ] * count
    timed = timing_statistics.timing_of(groups)
    found = timing_statistics.under_contention(timed, 100 * theirs)
    assert found.ci95 is not None
    if max(ours, theirs) > POLICY.disturbed_ratio:
        assert found.ci95[0] * 0.999 <= ratio <= found.ci95[1] * 1.001


@given(st.floats(1, 1000), st.floats(1, 1000))
def test_a_reference_slowed_by_other_processes_makes_no_candidate_fast(
    held_up: float, ours: float
) -> None:
    """The reference's best time counts, at most the measured time, and the interval is wide."""
    timed = timing_statistics.timing_of([disturbed(held_up, ours, 0.9)] * 12)
    found = timing_statistics.under_contention(timed, 10.0)
    assert found.ci95 is not None
    assert found.ci95[1] >= 10 * found.ci95[0]
    if held_up > 15:
        assert found.speedup == pytest.approx(10 / ours)
        assert found.reference_us == 10.0
    else:
        assert found.speedup == pytest.approx(held_up / ours)


def test_threads_that_a_candidate_lets_wait_gain_it_nothing() -> None:
    """Only the upper end of its interval moves."""
    calm = timing_statistics.timing_of([group(100.0, 50.0)] * 12)
    waiting = [
        TimedGroup(reference=(100.0,) * 2, candidate=(50.0,) * 2, candidate_wait_share=0.9)
    ] * 12
    found = timing_statistics.under_contention(timing_statistics.timing_of(waiting), 100.0)
    assert calm.ci95 is not None
    assert found.ci95 is not None
    assert (found.speedup, found.ci95[0]) == (calm.speedup, calm.ci95[0])
    assert found.ci95[1] > calm.ci95[1]


def test_on_a_calm_machine_figures_stay_as_they_are() -> None:
    """Without contention nothing is widened."""
    calm = timing_statistics.timing_of([group(100.0, 50.0)] * 12)
    assert timing_statistics.under_contention(calm, 99.0) == calm


@given(st.floats(1, 1000), st.floats(1, 1000))
def test_a_reference_slowed_by_the_candidate_makes_it_no_faster(beside: float, ours: float) -> None:
    """Kernels that run on in the reference's time gain three per cent at most."""
    timed = timing_statistics.timing_of([group(beside, ours)] * 12)
    found = timing_statistics.against_alone(timed, 10.0)
    assert found.speedup <= POLICY.slowed_ratio * 10 / ours * 1.001 or beside <= 10.0
    assert found.speedup <= timed.speedup
    assert found.ci95 is not None
    assert found.ci95[0] <= found.speedup * 1.001
    if beside <= 10.0:
        assert found == timed


# --- empty blocks ---------------------------------------------------------------------------------


def empty_blocks(hand_over_s: float = 0.001) -> EmptyBlocks:
    found = EmptyBlocks()
    for number in range(POLICY.empty_blocks):
        found.add(TimedWindow(block_s=0.001, hand_over_s=hand_over_s * (1 - 0.01 * number)))
    return found


@given(st.floats(0.5, 1e5), st.integers(1, 2048))
def test_a_figure_is_what_the_calls_took(us: float, calls: int) -> None:
    """An honest block's figure is its calls' time: nothing is added, whatever the call is."""
    window = TimedWindow(block_s=0.001 + us * calls / 1e6, hand_over_s=0.00095)
    found = empty_blocks().net_us(window, calls, ReferenceBlocks())
    assert found == pytest.approx(us, rel=1e-6, abs=1e-3)


@given(st.floats(1.0, 1e5), st.integers(1, 2048))
def test_work_left_for_the_hand_over_counts(us: float, calls: int) -> None:
    """Work that is done after the answer, on a processor or on the card, is time of the calls."""
    late = TimedWindow(block_s=0.001, hand_over_s=0.001 + us * calls / 1e6)
    found = empty_blocks().net_us(late, calls, ReferenceBlocks())
    assert found == pytest.approx(us, rel=1e-6, abs=1e-3)


def reference_blocks(
    us: float,
    calls: int,
    beyond_s: float,
    besides_s: float,
    least_calls: int = POLICY.least_clocked_calls,
) -> ReferenceBlocks:
    """Blocks of a reference that takes longer besides its calls than empty blocks do."""
    found = ReferenceBlocks(least_calls)
    for number in range(POLICY.reference_blocks):
        window = TimedWindow(
            block_s=0.001 + besides_s + us * calls / 1e6,
            hand_over_s=0.001 + beyond_s * (1 + 0.01 * number),
            call_s=us / 1e6,
        )
        found.add(window, calls, empty_blocks())
    return found


@given(st.floats(100.0, 1e5), st.integers(1, 7), st.floats(0, 3.9e-4))
def test_a_card_tells_what_blocks_of_few_large_calls_take_besides(
    us: float, calls: int, besides_s: float
) -> None:
    """A block of one to seven calls on gigabytes is not charged for its start either."""
    besides = reference_blocks(us, calls, 0.0, besides_s, POLICY.gpu_least_clocked_calls)
    for side_us, side_calls in ((us, calls), (us / 3, 3 * calls)):
        window = TimedWindow(
            block_s=0.001 + besides_s + side_us * side_calls / 1e6, hand_over_s=0.00098
        )
        found = empty_blocks().net_us(window, side_calls, besides)
        assert found == pytest.approx(side_us, rel=1e-3, abs=2e-2)


@given(st.floats(5.0, 1e4), st.integers(8, 2048), st.floats(0, 4e-4), st.floats(0, 5e-5))
def test_a_side_may_take_what_the_reference_takes_besides_its_calls(
    us: float, calls: int, beyond_s: float, besides_s: float
) -> None:
    """A slow start, a slow answer and a long hand-over of all blocks are on no side's figure."""
    besides = reference_blocks(us, calls, beyond_s, besides_s)
    for side_us, side_calls in ((us, calls), (us / 3, 3 * calls), (us * 3, max(1, calls // 3))):
        window = TimedWindow(
            block_s=0.001 + besides_s + side_us * side_calls / 1e6, hand_over_s=0.00098 + beyond_s
        )
        found = empty_blocks().net_us(window, side_calls, besides)
        assert found == pytest.approx(side_us, rel=1e-3, abs=2e-2)


@given(st.floats(5.0, 1e4), st.integers(8, 2048), st.floats(1e-3, 1.0), st.floats(1e-3, 1.0))
def test_delays_of_the_reference_excuse_little(
    us: float, calls: int, beyond_s: float, besides_s: float
) -> None:
    """What leftover work of a candidate does to the reference's blocks excuses 2.5 ms at most.

    That is in a few blocks; in most of them it is 1.8 ms at most.
    """
    besides = reference_blocks(us, calls, beyond_s, besides_s)
    late = TimedWindow(block_s=0.001, hand_over_s=0.001 + us * calls / 1e6)
    outputs_s = calls * POLICY.max_output_s
    for usual_s, limit_s in (
        (0.0, POLICY.max_single_hand_over_s + POLICY.max_besides_s),
        (late.hand_over_s, POLICY.max_hand_over_s + POLICY.max_besides_s + 3e-4),
    ):
        net_us = empty_blocks().net_us(late, calls, besides, usual_s)
        assert (us - net_us) * calls / 1e6 <= limit_s + outputs_s + 2e-4


def test_one_late_hand_over_is_chance_and_most_are_not() -> None:
    """A millisecond at the end of one block is noise where the reference has it as well."""
    besides = reference_blocks(1000.0, 20, 1e-3, 0.0)
    late = TimedWindow(block_s=0.021, hand_over_s=0.002)
    assert empty_blocks().net_us(late, 20, besides, 0.001) == pytest.approx(1000.0)
    assert empty_blocks().net_us(late, 20, besides, 0.002) > 1000.0


def late_window(rng: random.Random, calls: int, us: float) -> TimedWindow:
    """Return a block whose hand-over is late in every second case, whichever side it is of."""
    late_s = rng.uniform(5e-4, 2e-3) if rng.random() < 0.5 else 0.0
    block_s = rng.gauss(4e-4, 4e-5) + calls * us * rng.gauss(1, 0.003) / 1e6
    return TimedWindow(block_s=block_s, hand_over_s=rng.gauss(1e-3, 5e-5) + late_s)


def group_of_late_windows(rng: random.Random, times: BlockTimes, calls: int) -> TimedGroup:
    """Return a group of a module against itself."""
    windows: dict[Side, list[TimedWindow]] = {side: [] for side in SIDES}
    for side in (side for part in block_randomization.group_order() for side in part):
        windows[side].append(late_window(rng, calls, 300.0))
        times.add(side, windows[side][-1], calls)
    times.add_empty(late_window(rng, 0, 0.0), calls)
    us = {side: times.net_us(windows[side], calls)[-2:] for side in SIDES}
    (one, two), (three, four) = us["reference"], us["candidate"]
    return TimedGroup(reference=(one, two), candidate=(three, four))


@settings(max_examples=2)
@given(st.integers(0, 10**6))
def test_hand_overs_that_are_late_by_chance_move_no_interval_off_the_truth(seed: int) -> None:
    """What was late in earlier groups is on no side's figure: one side would have it in them all.

    Where the usual hand-over was that of a side's last eight blocks, 4 to 8 % of the intervals
    excluded the truth.
    """
    rng = random.Random(seed)
    contained, repetitions = 0, 400
    for _repetition in range(repetitions):
        times = BlockTimes(on_host=False)
        times.add_empty(late_window(rng, 0, 0.0), 42)
        groups = [group_of_late_windows(rng, times, 42) for _group in range(14)][2:]
        low, high = timing_statistics.timing_of(groups).ci95 or (0.0, 0.0)
        contained += low <= 1 <= high
    assert contained / repetitions > 0.99 - 4 * math.sqrt(0.99 * 0.01 / repetitions)


def test_a_candidate_is_not_asked_what_its_calls_take() -> None:
    """Only the reference's own clock is believed, and no block is excused for a candidate's."""
    window = TimedWindow(block_s=0.021, hand_over_s=0.00098, call_s=1e-9)
    found = empty_blocks().net_us(window, 20, ReferenceBlocks())
    assert found == pytest.approx(1000.0)


def test_blocks_that_the_referee_repeats_follow_what_a_call_of_it_takes() -> None:
    """One call that other programs held up makes no block short for good."""
    sizes = BlockSize(most=2048, block_s=0.01, time_s=20.0, is_repeated=True)
    sizes.plan("reference", 40_000.0)
    sizes.plan("candidate", 10.0)
    assert sizes.calls("candidate") == POLICY.max_repeated_s / 0.04
    sizes.plan("reference", 40.0)
    assert sizes.plan("candidate", 10.0)
    assert sizes.calls("candidate") == 1000


def test_a_side_that_gets_fast_is_planned_anew() -> None:
    """A block of one call of a fast kernel does not count, and the next one is longer."""
    sizes = BlockSize(most=2048, block_s=0.01, time_s=20.0)
    assert not sizes.plan("candidate", 20_000.0)
    assert sizes.calls("candidate") == 1
    assert sizes.plan("candidate", 10.0)
    assert sizes.calls("candidate") == 1000
    assert not sizes.plan("candidate", 11.0)
    assert sizes.calls("reference") == 1


def test_sides_that_take_about_as_long_have_blocks_of_as_many_calls() -> None:
    """What a block takes besides its calls cancels between them; a far faster side has its own."""
    sizes = BlockSize(most=2048, block_s=0.01, time_s=20.0)
    sizes.plan("reference", 100.0)
    sizes.plan("candidate", 80.0)
    assert {sizes.calls(side) for side in SIDES} == {125}
    assert not sizes.plan("reference", 101.0)
    assert not sizes.plan("candidate", 79.0)
    sizes.plan("candidate", 20.0)
    assert sizes.calls("reference") == 125
    assert sizes.calls("candidate") == 500


def test_a_task_that_draws_slowly_has_short_blocks() -> None:
    """Filling the slots of one block takes no longer than is allowed."""
    sizes = BlockSize(most=2048, block_s=0.01, time_s=20.0)
    sizes.limit(7)
    sizes.plan("candidate", 10.0)
    assert sizes.calls("candidate") == sizes.largest == 7


def test_six_groups_are_timed_unless_they_take_too_long() -> None:
    """When the time is up timing goes on for as long again; then three groups do."""
    groups = [group(100 * (1 + 0.1 * (number % 3)), 100) for number in range(6)]
    assert not timing_statistics.is_enough(groups[:3], 1.0, 1.0)
    assert not timing_statistics.is_enough(groups[:2], 9.0, 1.0)
    assert timing_statistics.is_enough(groups[:3], 2.0, 1.0)
    assert timing_statistics.is_enough(groups, 1.0, 1.0)


def test_a_first_look_of_a_contender_ends_at_one_percent_to_either_side() -> None:
    """The winner is timed again in full, to half of that: then there is no best to beat."""
    within = [group(200 * (1 + 0.009 * (number % 3)), 100) for number in range(8)]
    beyond = [group(200 * (1 + 0.02 * (number % 3)), 100) for number in range(8)]
    for best in (1.5, 2.0, 2.01):
        assert timing_statistics.is_enough(within, 0.5, 6.0, best_speedup=best)
        assert not timing_statistics.is_enough(beyond, 0.5, 6.0, best_speedup=best)
    calm = [group(200 * (1 + 0.003 * (number % 3)), 100) for number in range(6)]
    assert timing_statistics.is_enough(calm, 0.5, 6.0, best_speedup=2.0)
    assert not timing_statistics.is_enough(calm[:4], 0.5, 6.0, best_speedup=2.0)
    assert not timing_statistics.is_enough(calm, 0.5, 6.0)
    assert not timing_statistics.is_enough(within, 0.5, 6.0)


def test_a_candidate_far_behind_the_best_takes_few_groups() -> None:
    """Half as fast as the best is seen after four groups; a little slower is not."""
    groups = [group(100 * (1 + 0.01 * (number % 3)), 100) for number in range(4)]
    assert timing_statistics.is_enough(groups, 0.5, 6.0, best_speedup=2.0)
    assert not timing_statistics.is_enough(groups, 0.5, 6.0, best_speedup=1.1)
    assert not timing_statistics.is_enough(groups, 0.5, 6.0)
    waiting = [msgspec.structs.replace(each, candidate_wait_share=0.5) for each in groups]
    assert not timing_statistics.is_enough(waiting, 0.5, 6.0, best_speedup=2.0)
    wide = [group(100 * (1 + 0.4 * (number % 3)), 100) for number in range(4)]
    assert not timing_statistics.is_enough(wide, 0.5, 6.0, best_speedup=2.0)
    assert timing_statistics.is_enough(wide, 0.5, 6.0, best_speedup=9.0)


@settings(max_examples=6)
@given(st.integers(0, 10**6), st.sampled_from([0.02, 0.1, 0.3]))
def test_one_as_fast_as_the_best_is_hardly_ever_far_behind(seed: int, noise: float) -> None:
    """However the calls vary: of 150 equals of the best no more than one in a hundred is."""
    rng = random.Random(seed)
    repetitions = 150
    ended_early = 0
    for _repetition in range(repetitions):
        groups = [group(100 * math.exp(rng.gauss(0, noise)), 100) for _ in range(4)]
        ended_early += timing_statistics.is_enough(groups, 0.5, 6.0, best_speedup=1.0)
    assert ended_early <= repetitions * (0.01 + 3 * math.sqrt(0.01 * 0.99 / repetitions))


@settings(max_examples=6)
@given(st.integers(0, 10**6), st.sampled_from([0.002, 0.01, 0.04]), st.sampled_from([0.0, 1.0]))
def test_ending_early_makes_no_interval_too_narrow(seed: int, noise: float, best: float) -> None:
    """Nine in ten intervals of timings that ended by their own width hold the true ratio."""
    rng = random.Random(seed)
    contained = 0
    repetitions = 150
    for _repetition in range(repetitions):
        groups: list[TimedGroup] = []
        while not timing_statistics.is_enough(groups, len(groups) * 0.05, 6.0, best * 1.5):
            groups.append(group(100 * math.exp(rng.gauss(0, noise)), 100))
        low, high = timing_statistics.timing_of(groups).ci95 or (0.0, 0.0)
        contained += low <= 1.0 <= high
    assert contained / repetitions > 0.9 - 3 * math.sqrt(0.9 * 0.1 / repetitions)
