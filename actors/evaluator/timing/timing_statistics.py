"""The figures behind a verdict's microseconds: which block comes next, and how sure we are.

Pure: no clock, no process.  Reference and candidate are timed in blocks of calls, in groups
A B B A, so that a machine that slowly warms up or gets busy hurts both sides alike.  One group
gives one ratio; the reported speedup is the groups' median, with an interval that assumes no
distribution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import mean, median
from typing import Literal, Protocol, TypeVar

import msgspec

from protocol.values import Value

Side = Literal["reference", "candidate"]
HALVES: tuple[tuple[Side, Side], ...] = (("reference", "candidate"), ("candidate", "reference"))

BLOCK_S = 0.02  # a block lasts at least this long
GPU_BLOCK_S = 0.01  # on a card, where nobody else's threads come between
MAX_CALLS = 50_000
ENOUGH_INTERVAL_WIDTH = (
    0.01  # enough is known when the interval is narrower than this share of the ratio
)
MAX_CALM_WAIT_SHARE = 0.3  # a group in which tasks waited longer than this share is disturbed
HELD_UP_RATIO = (
    1.5  # times its best: more is no longer the reference's own doing, on a busy machine
)
SLOWED_RATIO = 1.03  # times what it takes alone: more may be the candidate's doing, on a card
ENOUGH_GROUPS = 8  # before the interval may end it
MIN_GROUPS = 3  # even when time is up
# Two-sided 95 % points of Student's t, for fewer groups than a sign interval can use.
STUDENT_T_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}


class TimedGroup(Value, frozen=True, kw_only=True):
    """Microseconds a call, two blocks of each side."""

    reference: tuple[float, float]
    candidate: tuple[float, float]
    cpu_wait_share: float = 0.0  # the share of its time in which some task waited for a processor

    @property
    def log_ratio(self) -> float:
        """The logarithm of reference over candidate: above 0 the candidate is faster.

        Of the times together, not of each block's own ratio: two blocks of which one took no time
        at all would make anything of the other.
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
    penalty_us: float = 0.0  # a call, to what was claimed: see `proofs`
    held_up_us: float = 0.0  # what the reference took here, where strangers held it up
    slowed_us: float = 0.0  # the same, where the candidate may have: its kernels run on


class HasCpuWait(Protocol):
    """A group, or what is claimed in one."""

    @property
    def cpu_wait_share(self) -> float:
        """The share of its time in which some task waited for a processor."""
        ...


AnyGroup = TypeVar("AnyGroup", bound=HasCpuWait)


def calls_a_block(call_s: float, block_s: float = BLOCK_S) -> int:
    """Return how many calls make a block, when one takes `call_s` seconds."""
    if call_s * MAX_CALLS <= block_s:
        return MAX_CALLS
    return math.ceil(block_s / call_s)


def calm_groups(groups: Sequence[AnyGroup]) -> Sequence[AnyGroup]:
    """Return the groups that nobody disturbed; all of them, when these are too few to do.

    On a shared machine a disturbed group is off by any factor: threads of one side wait for each
    other while a stranger has their core.
    """
    quiet = [group for group in groups if group.cpu_wait_share <= MAX_CALM_WAIT_SHARE]
    return quiet if len(quiet) >= ENOUGH_GROUPS else groups


def timing_of(measured: Sequence[TimedGroup]) -> Timing:
    """Return the figures of the groups so far (at least one)."""
    groups = calm_groups(measured)
    logs = [group.log_ratio for group in groups]
    inside = median_interval(logs)
    return Timing(
        # Of groups, like the ratio: of single blocks, medians and ratio could say different things.
        median_us=median(mean(group.candidate) for group in groups),
        reference_us=median(mean(group.reference) for group in groups),
        speedup=math.exp(median(logs)),
        ci95=None if inside is None else (math.exp(inside[0]), math.exp(inside[1])),
        groups=len(groups),
        disturbed_groups=len(measured) - len(groups),
        busy_groups=sum(group.cpu_wait_share > MAX_CALM_WAIT_SHARE for group in groups),
    )


def against_best(timed: Timing, best_us: float) -> Timing:
    """Return the figures against the reference's best time so far, where it was held up.

    Two threads that wait for each other while strangers have their cores take a hundred times as
    long; a candidate with one thread does not, and would be called a hundred times as fast.  Only
    where disturbed groups had to be used: then no interval is known, either.
    """
    if not timed.busy_groups or timed.reference_us <= HELD_UP_RATIO * best_us:
        return timed
    return msgspec.structs.replace(
        timed,
        reference_us=best_us,
        speedup=min(timed.speedup, best_us / timed.median_us),
        ci95=None,
        held_up_us=timed.reference_us,
    )


def against_alone(timed: Timing, alone_us: float) -> Timing:
    """Return the figures against the reference alone, where it was slower beside the candidate.

    On a card kernels run on when their process is stopped, in the reference's time.
    """
    slower = timed.reference_us / alone_us
    if slower <= SLOWED_RATIO:
        return timed
    low, high = timed.ci95 or (0.0, 0.0)
    return msgspec.structs.replace(
        timed,
        reference_us=alone_us,
        speedup=timed.speedup / slower,
        ci95=(low / slower, high / slower) if timed.ci95 else None,
        slowed_us=timed.reference_us,
    )


def is_enough(measured: Sequence[TimedGroup], elapsed_s: float, time_s: float) -> bool:
    """Whether to stop: the interval is narrow, or the time is up."""
    if elapsed_s >= time_s and len(measured) >= MIN_GROUPS:
        return True
    groups = calm_groups(measured)
    if len(groups) < ENOUGH_GROUPS:
        return False
    inside = median_interval([group.log_ratio for group in groups])
    return inside is not None and inside[1] - inside[0] < ENOUGH_INTERVAL_WIDTH


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return a 95 % interval of the median of what `values` are drawn from.

    From six values on it is the sign interval: order statistics, whatever the distribution.
    With fewer it takes them to be normal; with one nothing is known.
    """
    count = len(values)
    if count < 2:
        return None
    if count in STUDENT_T_95:
        middle = sum(values) / count
        spread = math.sqrt(sum((value - middle) ** 2 for value in values) / (count - 1))
        reach = STUDENT_T_95[count] * spread / math.sqrt(count)
        return middle - reach, middle + reach
    rank = _sign_rank(count)
    ranked = sorted(values)
    return ranked[rank - 1], ranked[count - rank]


def _sign_rank(count: int) -> int:
    """Return the largest k such that the k-th smallest and k-th largest value hold 95 %."""
    tail, rank = 0.0, 0
    while True:
        tail += math.exp(
            math.lgamma(count + 1)
            - math.lgamma(rank + 1)
            - math.lgamma(count - rank + 1)
            - count * math.log(2)
        )
        if tail > 0.025:
            return max(rank, 1)
        rank += 1
