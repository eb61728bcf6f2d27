"""Laws of the figures: order of blocks, intervals, when to stop, and the audit of claims."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.evaluator.timing import audit, timing_statistics
from actors.evaluator.timing.audit import FreshBlock, GroupClaim, TimedBlock
from actors.evaluator.timing.block_size import BlockSize
from actors.evaluator.timing.timing_policy import POLICY
from actors.evaluator.timing.timing_statistics import TimedGroup
from protocol.values import MAX_SHOWN_GROUPS

LOGS = st.lists(st.floats(-3, 3), min_size=2, max_size=60)


def group(reference: float, candidate: float) -> TimedGroup:
    return TimedGroup(reference=(reference, reference), candidate=(candidate, candidate))


def test_blocks_come_in_the_order_a_b_b_a() -> None:
    """Each side has the same mean position in a group, so that a linear drift cancels."""
    sides = [side for half in timing_statistics.HALVES for side in half]
    assert sides == ["reference", "candidate", "candidate", "reference"]


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
    """The reported speedup is within its own interval."""
    found = timing_statistics.median_interval(values)
    assert found is not None
    ranked = sorted(values)
    middle = (ranked[(len(ranked) - 1) // 2] + ranked[len(ranked) // 2]) / 2
    if len(values) > max(timing_statistics.STUDENT_T_95):
        assert found[0] <= middle <= found[1]
    assert found[0] <= found[1]


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 10**6), st.sampled_from([3, 5, 6, 9, 20, 50]))
def test_the_interval_contains_the_true_ratio_in_95_of_100_cases(seed: int, count: int) -> None:
    """In 95 of 100 repetitions, less what chance allows, the true ratio is in the interval."""
    rng = random.Random(seed)
    contained = 0
    repetitions = 400
    for _repetition in range(repetitions):
        low, high = timing_statistics.median_interval(
            [rng.gauss(0.3, 0.05) for _ in range(count)]
        ) or (0, 0)
        contained += low <= 0.3 <= high
    # Four standard deviations of a binomial below 95 %.
    assert contained / repetitions > 0.95 - 4 * math.sqrt(0.95 * 0.05 / repetitions)


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
    """Narrow intervals end it early, but never before eight groups; time ends it after three."""
    steady = [group(200, 100)] * 40
    wild = [group(200 + 100 * (number % 3), 100) for number in range(40)]
    assert not timing_statistics.is_enough(steady[:7], 1.0, 20.0)
    assert timing_statistics.is_enough(steady[:8], 1.0, 20.0)
    assert not timing_statistics.is_enough(wild, 1.0, 20.0)
    assert timing_statistics.is_enough(wild, 20.0, 20.0)
    assert not timing_statistics.is_enough(steady[:2], 99.0, 20.0)


def test_a_candidate_that_is_clearly_behind_is_timed_roughly() -> None:
    """3 % are narrow enough below the task's best node, 10 % are not; a contender goes on."""

    def alternating(spread: float) -> list[TimedGroup]:
        return [group(200 * (1 + spread * (number % 2)), 100) for number in range(40)]

    three_percent, ten_percent = alternating(0.03), alternating(0.10)
    assert not timing_statistics.is_enough(three_percent, 1.0, 20.0)
    assert not timing_statistics.is_enough(three_percent, 1.0, 20.0, best_speedup=2.03)
    assert timing_statistics.is_enough(three_percent, 1.0, 20.0, best_speedup=3.0)
    assert not timing_statistics.is_enough(three_percent[:7], 1.0, 20.0, best_speedup=3.0)
    assert not timing_statistics.is_enough(ten_percent, 1.0, 20.0, best_speedup=3.0)


@given(st.floats(0, 100))
def test_a_block_is_long_enough_to_be_timed(call_s: float) -> None:
    """A block lasts 20 ms, or is one call, or is as many calls as are allowed."""
    calls = timing_statistics.calls_a_block(call_s)
    assert 1 <= calls <= POLICY.max_block_calls
    assert calls in (1, POLICY.max_block_calls) or calls * call_s >= POLICY.block_s


def test_disturbed_groups_do_not_move_the_figures() -> None:
    """Groups with contention are left out, where enough calm groups are there."""
    calm = [group(200, 100)] * POLICY.enough_groups
    disturbed = [TimedGroup(reference=(900, 900), candidate=(100, 100), cpu_wait_share=0.5)] * 50
    mixed = timing_statistics.timing_of([*disturbed, *calm])
    assert math.isclose(mixed.speedup, 2.0)
    assert mixed.disturbed_groups == 50
    few = timing_statistics.timing_of([*disturbed, *calm[:3]])
    assert (few.disturbed_groups, few.busy_groups) == (0, 50)


@given(st.floats(1, 1000), st.floats(1, 1000))
def test_a_reference_slowed_by_other_processes_makes_no_candidate_fast(
    held_up: float, ours: float
) -> None:
    """The reference's best time counts, at most the measured time, without an interval."""
    busy = [
        TimedGroup(reference=(held_up, held_up), candidate=(ours, ours), cpu_wait_share=0.9)
    ] * 12
    found = timing_statistics.against_best(timing_statistics.timing_of(busy), 10.0)
    if held_up > 15:
        assert found.speedup == pytest.approx(10 / ours)
        assert found.ci95 is None
        assert found.reference_us == 10.0
    else:
        assert found.speedup == pytest.approx(held_up / ours)


def test_on_a_calm_machine_a_slow_reference_is_slow() -> None:
    """Without contention the reference's best time does not replace the measured one."""
    calm = timing_statistics.timing_of([group(100.0, 50.0)] * 12)
    assert timing_statistics.against_best(calm, 10.0) == calm


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


def claim(
    reference: tuple[float, float, float], candidate: tuple[float, float, float]
) -> GroupClaim:
    """A group of equal blocks: us a call on fresh inputs, with collecting, on known inputs."""
    ours, others = (
        TimedBlock(
            us=known, fresh=FreshBlock(calls=100, us=us, input_us=30.0, output_us=total_us - us)
        )
        for us, total_us, known in (candidate, reference)
    )
    return GroupClaim(reference=(others, others), candidate=(ours, ours))


def test_a_cold_start_is_not_penalized() -> None:
    """A cold start may cost the candidate what it costs the reference: no penalty."""
    found = audit.audited_timing([claim((594.0, 700.0, 362.0), (321.0, 420.0, 98.0))] * 12)
    assert found.speedup == pytest.approx(362 / 98)


@given(st.integers(1, 512))
def test_a_cold_launch_is_not_penalized(calls: int) -> None:
    """A hundred microseconds at the beginning of a block are no sign of cached results."""
    reference = TimedBlock(us=400.0, fresh=FreshBlock(calls=calls, us=400.0))
    candidate = TimedBlock(us=100.0, fresh=FreshBlock(calls=calls, us=100.0 + 99.0 / calls))
    found = audit.audited_timing(
        [GroupClaim(reference=(reference, reference), candidate=(candidate, candidate))] * 12
    )
    assert found.speedup == pytest.approx(4.0)


def test_work_during_input_transfer_is_added_and_slow_memory_is_not() -> None:
    """Work done while inputs are set is a penalty; slower memory placement is not."""
    reference = TimedBlock(
        us=400.0, fresh=FreshBlock(calls=10, us=400.0, input_us=250.0, output_us=120.0)
    )

    def speedup(input_us: float) -> float:
        fresh = FreshBlock(calls=10, us=100.0, input_us=input_us, output_us=120.0)
        candidate = TimedBlock(us=100.0, fresh=fresh)
        claims = [GroupClaim(reference=(reference,) * 2, candidate=(candidate,) * 2)] * 12
        return audit.audited_timing(claims).speedup

    assert speedup(270.0) == pytest.approx(4.0)
    assert speedup(350.0) == pytest.approx(2.0)


def test_results_cached_for_known_inputs_are_not_credited() -> None:
    """A candidate that is fast only on inputs it has seen is as slow as on fresh ones."""
    found = audit.audited_timing([claim((110.0, 130.0, 100.0), (111.0, 131.0, 2.0))] * 12)
    assert 0.9 < found.speedup < 1.03


def test_cold_caches_excuse_no_cached_result() -> None:
    """Fresh inputs may cost the reference more than its call; that excuses no claim near zero."""
    reference, honest, cheat = (61.0, 80.0, 25.0), (40.0, 59.0, 16.0), (18.0, 37.0, 1.0)
    assert audit.audited_timing([claim(reference, honest)] * 12).speedup == pytest.approx(25 / 16)
    assert audit.audited_timing([claim(reference, cheat)] * 12).speedup < 61 / 18


def test_work_done_outside_of_its_blocks_is_added() -> None:
    """Outputs that are finished while they are handed over cost what that takes."""
    claims = [claim((100.0, 120.0, 100.0), (50.0, 135.0, 50.0))] * 12
    assert audit.audited_timing(claims).median_us == pytest.approx(50 + 65)
    assert not audit.is_impossible(claims)
    assert audit.is_impossible([claim((100.0, 120.0, 100.0), (5.0, 120.0, 5.0))] * 12)


def test_disturbed_blocks_do_not_hide_a_claim() -> None:
    """Contention in half of the reference's blocks does not hide cached results."""
    calm, busy = (110.0, 130.0, 100.0), (900.0, 950.0, 100.0)
    claims = [claim(each, (111.0, 131.0, 2.0)) for each in (calm, busy) * 6]
    assert audit.audited_timing(claims).median_us > 90


@given(st.floats(0.55, 1.0), st.integers(0, 10**6))
def test_cheating_in_some_groups_is_not_hidden_by_others(share: float, seed: int) -> None:
    """Results cached, or work deferred, in more than half of the groups are not credited."""
    rng = random.Random(seed)
    honest = (110.0, 130.0, 100.0)
    for cheat in ((110.0, 130.0, 3.0), (10.0, 130.0, 10.0)):
        claims = [claim(honest, cheat if number < share * 20 else honest) for number in range(20)]
        rng.shuffle(claims)
        assert audit.audited_timing(claims).speedup < 1.06


@given(st.floats(1, 1e6), st.floats(1e-9, 1.0))
def test_one_block_in_no_time_makes_no_candidate_fast(us: float, least: float) -> None:
    """One of two blocks that claims almost no time is worth a factor of two at most."""
    left_out = TimedGroup(reference=(us, us), candidate=(us * least, us))
    assert left_out.log_ratio <= math.log(2.0) + 1e-9


def test_input_transfer_excuses_no_cached_result() -> None:
    """Setting the inputs of a tiny call takes longer than the call, and explains no cold start."""

    def side(us: float) -> TimedBlock:
        fresh = FreshBlock(calls=100, us=26.0, input_us=120.0, output_us=70.0)
        return TimedBlock(us=us, fresh=fresh)

    claims = [GroupClaim(reference=(side(22.0),) * 2, candidate=(side(11.0),) * 2)] * 12
    assert audit.audited_timing(claims).speedup == pytest.approx(1.0, abs=0.03)


@given(st.integers(3, POLICY.enough_groups - 1), st.integers(0, 10**6))
def test_a_few_groups_hide_no_cached_result(count: int, seed: int) -> None:
    """Input transfers of any unsteadiness do not hide what the cold start shows alone."""
    rng = random.Random(seed)

    def side(us: float) -> tuple[TimedBlock, TimedBlock]:
        fresh_us, input_us = rng.uniform(24.0, 26.0), rng.uniform(50.0, 150.0)
        fresh = FreshBlock(calls=512, us=fresh_us, input_us=input_us, output_us=10.0)
        return TimedBlock(us=us, fresh=fresh), TimedBlock(us=us)

    claims = [GroupClaim(reference=side(22.0), candidate=side(11.0)) for _group in range(count)]
    assert audit.is_doubtful(claims)
    assert audit.audited_timing(claims).speedup < 1.15


def test_a_few_groups_reject_no_candidate() -> None:
    """Contention may have been in all of a few groups: the cost is only added."""
    wild = [claim((100.0, 120.0, 100.0), (5.0, 120.0, 5.0))] * (POLICY.enough_groups - 1)
    assert not audit.is_impossible(wild)
    assert audit.audited_timing(wild).speedup == pytest.approx(1.0, abs=0.2)


def test_a_block_on_known_inputs_alone_is_held_against_the_fresh_one() -> None:
    """Work that is left out when no outputs are collected is added."""
    fresh = FreshBlock(calls=100, us=110.0, input_us=30.0, output_us=20.0)
    reference = (TimedBlock(us=100.0, fresh=fresh), TimedBlock(us=100.0))
    candidate = (TimedBlock(us=100.0, fresh=fresh), TimedBlock(us=1.0))
    found = audit.audited_timing([GroupClaim(reference=reference, candidate=candidate)] * 12)
    assert found.speedup == pytest.approx(1.0, abs=0.03)


@settings(deadline=None)
@given(st.integers(0, 10**6))
def test_other_processes_make_no_candidate_a_cheat(seed: int) -> None:
    """Where any block of either side may take twice as long, an honest figure is not halved.

    The law holds for two evaluations in two processes.
    """
    rng = random.Random(seed)

    def disturbed(us: float) -> float:
        return us * (2.0 if rng.random() < 0.3 else rng.uniform(0.97, 1.03))

    def blocks(us: float) -> tuple[TimedBlock, TimedBlock]:
        first, second = (
            TimedBlock(
                us=disturbed(us),
                fresh=FreshBlock(
                    calls=100, us=disturbed(us) + 10, input_us=disturbed(30.0), output_us=20.0
                ),
            )
            for _block in range(2)
        )
        return first, second

    def groups() -> list[GroupClaim]:
        return [
            GroupClaim(reference=blocks(200.0), candidate=blocks(100.0)) for _claim in range(40)
        ]

    claims = groups()
    if audit.is_doubtful(claims):
        claims = [*audit.counted_groups(claims, groups())]
    assert 1.2 < audit.audited_timing(claims).speedup < 3.0


def test_a_task_that_draws_slowly_has_short_blocks() -> None:
    """Inputs of one block never take longer to draw than an answer may take."""
    block_size = BlockSize(bytes_per_call=1000, batch_bytes=1 << 24, block_s=0.02, time_s=20.0)
    for _round in range(5):
        block_size.plan(claim((10.0, 10.0, 10.0), (10.0, 10.0, 10.0)), draw_s=0.3)
    assert block_size.calls * 0.3 <= 2.0
    block_size.plan(claim((10.0, 10.0, 10.0), (10.0, 10.0, 10.0)), draw_s=1e-5)
    assert block_size.calls > 20


@given(st.integers(0, 10**6))
def test_groups_disturbed_by_other_processes_do_not_widen_an_honest_interval(seed: int) -> None:
    """Fresh blocks of either side that are delayed now and then add nothing."""
    rng = random.Random(seed)

    def side(us: float, *, held_up: bool) -> tuple[float, float, float]:
        fresh, total, known = (
            each * rng.uniform(0.99, 1.01) for each in (us + 10.0, us + 40.0, us)
        )
        return fresh + 2000.0 * held_up, total + 2000.0 * held_up, known

    claims = [
        claim(side(200.0, held_up=number % 4 == 1), side(100.0, held_up=number % 4 == 3))
        for number in range(24)
    ]
    found = audit.audited_timing(claims)
    assert found.ci95 is not None
    assert 1.95 < found.ci95[0] < found.ci95[1] < 2.05
    assert found.penalty_us == 0.0
