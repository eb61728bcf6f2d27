"""The figures behind a verdict's microseconds: the order of blocks, ratios and intervals.

Pure: no clock, no process.  Reference and candidate are timed in blocks of calls, in groups
A B B A, so that a machine that slowly warms up or gets busy delays both sides alike.  A lot decides
which side is A.  The reported speedup is the median of the groups' ratios.

Its interval is that of Wilcoxon's signed ranks over the groups' ratios.  It assumes that a ratio is
as often above the true one as below it, by as much.  The lot makes it so for whatever comes and
goes on the machine, without another assumption.  Both pairs of a group count as one value: what
lasts for a group delays both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import mean, median
from typing import Literal

import msgspec

from actors.evaluator.timing.intervals import symmetric_interval
from actors.evaluator.timing.timing_policy import POLICY
from protocol.values import MAX_SHOWN_GROUPS, TimedGroups, Value

Side = Literal["reference", "candidate"]
SIDES: tuple[Side, Side] = ("reference", "candidate")
MAX_CALLS = 50_000  # of one order


class TimedGroup(Value, frozen=True, kw_only=True):
    """Microseconds a call, two blocks of each side."""

    reference: tuple[float, float]
    candidate: tuple[float, float]
    # Shares of each side's blocks in which its threads waited for a processor.
    reference_wait_share: float = 0.0
    candidate_wait_share: float = 0.0
    is_throttled: bool = False  # the card had lowered its clocks

    @property
    def is_calm(self) -> bool:
        """Whether neither contention nor lowered clocks disturbed it."""
        return not self.is_throttled and self.reference_wait_share <= POLICY.max_calm_wait_share

    @property
    def log_ratio(self) -> float:
        """The logarithm of reference over candidate: above 0 the candidate is faster.

        The ratio is that of the summed times, not the mean of the blocks' ratios: if one of two
        blocks took no time at all, it would make any figure of an honest other block.
        """
        return math.log(sum(self.reference)) - math.log(sum(self.candidate))


class Timing(Value, frozen=True, kw_only=True):
    """What was measured."""

    median_us: float
    reference_us: float
    speedup: float
    ci95: tuple[float, float] | None
    groups: int  # that the figures are made of
    disturbed_groups: int = 0  # that were left out
    busy_groups: int = 0  # that were disturbed and had to be used all the same
    throttled_groups: int = 0  # of these, the ones for which the card had lowered its clocks
    # How many times its undisturbed time each side took, at most.
    reference_contention: float = 1.0
    candidate_contention: float = 1.0
    held_up_us: float = 0.0  # the reference's measured time, where contention held it up
    is_quiet: bool = False  # other programs used next to no processor time
    slowed_us: float = 0.0  # the same, where the candidate's running kernels may have slowed it
    shown_groups: TimedGroups = TimedGroups()  # some of the groups, for people


def calls_a_block(call_s: float, block_s: float = POLICY.block_s) -> int:
    """Return how many calls make a block, when one takes `call_s` seconds."""
    return max(1, min(MAX_CALLS, math.ceil(block_s / max(call_s, 1e-9))))


def calm_groups(groups: Sequence[TimedGroup]) -> Sequence[TimedGroup]:
    """Return the groups without contention; all groups, when too few are calm.

    On a shared machine a disturbed group is off by any factor: threads of one side wait for each
    other while another process has their core.
    """
    calm = [group for group in groups if group.is_calm]
    return calm if len(calm) >= POLICY.enough_groups else groups


def timing_of(measured: Sequence[TimedGroup], *, is_quiet: bool = False) -> Timing:
    """Return the figures of the groups so far (at least one).

    `is_quiet`: threads waited for their own side's alone, so that no group was disturbed by that.
    """
    if is_quiet:
        measured = [
            msgspec.structs.replace(group, reference_wait_share=0.0, candidate_wait_share=0.0)
            for group in measured
        ]
    groups = calm_groups(measured)
    interval = ratio_interval(groups)
    reference_us, candidate_us = middle_us(groups)
    return Timing(
        median_us=candidate_us,
        reference_us=reference_us,
        speedup=math.exp(middle_of(groups)),
        ci95=None if interval is None else (math.exp(interval[0]), math.exp(interval[1])),
        groups=len(groups),
        disturbed_groups=len(measured) - len(groups),
        busy_groups=sum(not group.is_calm for group in groups),
        throttled_groups=sum(group.is_throttled for group in groups),
        reference_contention=median(1 / (1 - group.reference_wait_share) for group in groups),
        candidate_contention=median(1 / (1 - group.candidate_wait_share) for group in groups),
        is_quiet=is_quiet,
        shown_groups=shown_groups(groups),
    )


def middle_of(groups: Sequence[TimedGroup]) -> float:
    """Return the logarithm of the ratio: the median of the groups'."""
    return median(group.log_ratio for group in groups)


def middle_us(groups: Sequence[TimedGroup]) -> tuple[float, float]:
    """Return the microseconds of the reference's calls and of the candidate's."""
    # Of groups, like the ratio: of single blocks, medians and ratio could say different things.
    return (
        median(mean(group.reference) for group in groups),
        median(mean(group.candidate) for group in groups),
    )


def ratio_interval(groups: Sequence[TimedGroup]) -> tuple[float, float] | None:
    """Return the interval of the logarithm of the ratio; one group has none.

    The ratio is in it, and that of the times: where a machine is so busy that these differ, neither
    is certain.
    """
    if len(groups) < 2:
        return None
    low, high = symmetric_interval([group.log_ratio for group in groups])
    reference_us, candidate_us = middle_us(groups)
    reported = (middle_of(groups), math.log(reference_us / candidate_us))
    return min(low, *reported), max(high, *reported)


def shown_groups(groups: Sequence[TimedGroup]) -> TimedGroups:
    """Return the times of the groups, of many only evenly chosen ones, to five digits."""
    step = math.ceil(len(groups) / MAX_SHOWN_GROUPS) or 1
    chosen = groups[::step]
    return TimedGroups(
        reference_us=tuple(float(f"{mean(group.reference):.5g}") for group in chosen),
        candidate_us=tuple(float(f"{mean(group.candidate):.5g}") for group in chosen),
    )


def under_contention(timed: Timing, best_us: float) -> Timing:
    """Return the figures with what other programs on the machine can have done to them.

    `best_us`: the reference's best time so far.  Without contention each side takes no more than it
    took, and no less than that without the time in which its threads waited for a processor.  The
    interval gets as wide as these bounds allow.  A candidate that lets its own threads wait gains
    nothing: only the upper end of its interval moves.
    """
    reference = max(timed.reference_contention, timed.reference_us / best_us)
    candidate = max(timed.candidate_contention, timed.reference_us / best_us)
    if max(reference, candidate) <= POLICY.disturbed_ratio:
        return timed
    held_up = bool(timed.busy_groups) and timed.reference_us > POLICY.held_up_ratio * best_us
    low, high = timed.ci95 or (0.0, 0.0)
    return msgspec.structs.replace(
        timed,
        reference_us=best_us if held_up else timed.reference_us,
        speedup=min(timed.speedup, best_us / timed.median_us) if held_up else timed.speedup,
        ci95=(low / reference, high * candidate) if timed.ci95 else None,
        reference_contention=reference,
        candidate_contention=candidate,
        held_up_us=timed.reference_us if held_up else 0.0,
    )


def against_alone(timed: Timing, alone_us: float) -> Timing:
    """Return the figures against the reference alone, where it was slower beside the candidate.

    On a GPU, kernels of a frozen process run on in the reference's time.  Another program on the
    card may have slowed it as well, so only the lower end of the interval moves.
    """
    slowdown = timed.reference_us / alone_us
    if slowdown <= POLICY.slowed_ratio:
        return timed
    low, high = timed.ci95 or (0.0, 0.0)
    return msgspec.structs.replace(
        timed,
        reference_us=alone_us,
        speedup=timed.speedup / slowdown,
        ci95=(low / slowdown, high) if timed.ci95 else None,
        slowed_us=timed.reference_us,
    )


def is_enough(
    measured: Sequence[TimedGroup],
    elapsed_s: float,
    time_s: float,
    best_speedup: float = 0.0,
) -> bool:
    """Whether to stop: the interval is narrow, or the time is up.

    Then there are groups enough to doubt each of them, or the time is up a second time.

    A candidate whose whole interval is below `best_speedup` can't become the best of its task: a
    wider interval is narrow enough for it, and a still wider one after a second.  One that is far
    below ends at once.  A contender's first look needs no more than ±1 %: the winner is timed again
    in the end, then without a best.  Where half of the time has shown that the interval stays wide,
    the other half is for other candidates.
    """
    least_groups = POLICY.wanted_groups if elapsed_s < 2 * time_s else POLICY.min_groups
    if elapsed_s >= time_s and len(measured) >= least_groups:
        return True
    groups = calm_groups(measured)
    has_best = best_speedup > 0
    interval = ratio_interval(groups) if is_look(len(groups), has_best=has_best) else None
    if interval is None:
        return False
    low, high = interval
    if not has_best:
        return high - low < POLICY.enough_interval_width
    if high < math.log(best_speedup / POLICY.far_behind_ratio) and has_not_waited(groups):
        return True
    if len(groups) < POLICY.first_look_groups:
        return False
    width = POLICY.enough_width_contender
    if high < math.log(best_speedup):
        is_long = elapsed_s >= POLICY.behind_s
        width = POLICY.most_width_behind if is_long else POLICY.enough_width_behind
    return high - low < width or stays_wide(high - low, elapsed_s / time_s)


def stays_wide(width: float, time_share: float) -> bool:
    """Whether an interval is going to be wide when the time is up: half of it has shown that.

    It gets narrower by the root of the time.
    """
    return time_share >= 0.5 and width * math.sqrt(time_share) > POLICY.enough_width_behind


def has_not_waited(groups: Sequence[TimedGroup]) -> bool:
    """Whether the candidate waited for no processor: on a busy machine that alone makes it slow."""
    return all(each.candidate_wait_share <= POLICY.max_calm_wait_share for each in groups)


def is_look(groups: int, *, has_best: bool = False) -> bool:
    """Whether the interval of this many groups is looked at, to end the timing.

    `has_best`: it is a first look of a task that has a best node; these begin earlier.
    """
    if has_best and groups in (POLICY.far_behind_groups, POLICY.first_look_groups):
        return True
    look = POLICY.enough_groups
    while look < groups:
        look = math.ceil(look * POLICY.look_growth)
    return look == groups
