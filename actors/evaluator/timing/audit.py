"""What a candidate claims, held against all that it needed: work done elsewhere is added.

Pure: no clock, no process.  A claim is the longest block of a turn.  Its proof are calls on inputs
of their own in the same group, from the first byte that is fed to the last that is collected.  The
reference is asked the same and has no reason to work outside its calls, nor to remember results; so
what the candidate needs more than the reference is work of its calls, and is added to all of them.

Two things are asked.  Is it more in the lower quartile of all groups?  Then it is so always.  Is it
more in the median of those groups in which it claims most?  Then the reported median comes from
groups that are not what they seem, though others look honest.  A stranger who disturbs some blocks
of either side moves neither.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import mean, median

import msgspec

from actors.evaluator.timing.timing_statistics import (
    ENOUGH_GROUPS,
    MAX_CALM_WAIT_SHARE,
    TimedGroup,
    Timing,
    calm_groups,
    timing_of,
)
from protocol.values import Value

# Of a claim: what may be missing from it before it is added.
UNPROVEN_SHARE = 0.05
# The same where calls take gigabytes: on a card that was idle for a draw they took 15 % longer.
UNPROVEN_SHARE_FEW_CALLS, FEW_CALLS = 0.15, 2
# Of what feeding and collecting take: gigabytes are fed at a speed that depends on where they lie,
# and a card at one that depends on the processor that a process got for as long as it lives.
# Otherwise it is a third: a tenth would be half of a call that only moves its inputs.
TRANSFER_SHARE, TRANSFER_SHARE_CACHED = 0.1, 0.03
COLD_US = 100.0  # a block: launching on a host whose caches are cold, in nobody's call
# Times a call, on a host: a call that moves its inputs takes 25 µs there, on fresh ones 60. These
# 35 µs would excuse who needs 17, remembers all and claims one.  Honest ones: 2.3 times at most.
COLD_TIMES = 3.0
IMPOSSIBLE_RATIO = 2.0  # more than this share of the claim elsewhere: it is refused
SURE_DEVIATIONS = 1.64  # standard deviations: where an order statistic is with 90 %
# Who may well need this many times more than it claims is looked at again, and nothing added yet:
# one candidate in thirty on a noisy machine, and who remembers results now and then.
GROSS_RATIO, LIKELY_DEVIATIONS = 4.0, 0.5


class FreshBlock(Value, frozen=True, kw_only=True):
    """Calls on inputs of their own, microseconds a call: feeding, the calls, collecting."""

    calls: int
    us: float
    fed_us: float = 0.0
    collected_us: float = 0.0


class TimedBlock(Value, frozen=True, kw_only=True):
    """The longest block of one turn, microseconds a call, and what proves it, where it was fed."""

    us: float
    fresh: FreshBlock | None = None


TimedBlocks = tuple[TimedBlock, TimedBlock]


class GroupClaim(Value, frozen=True, kw_only=True):
    """One group: what was claimed in it, and what proves it."""

    reference: TimedBlocks
    candidate: TimedBlocks
    cpu_wait_share: float = 0.0
    on_gpu: bool = False

    @property
    def as_group(self) -> TimedGroup:
        """The longest blocks that there are."""
        return self.with_penalty(0.0)

    def with_penalty(self, added_us: float) -> TimedGroup:
        """Return the same with microseconds added to each of the candidate's calls."""
        first, second = (block.us for block in self.reference)
        third, fourth = (block.us for block in self.candidate)
        if added_us:  # what is missing may be missing from one turn only: the other says nothing
            third = fourth = (third + fourth) / 2 + added_us
        return TimedGroup(
            reference=(first, second), candidate=(third, fourth), cpu_wait_share=self.cpu_wait_share
        )


class UnclaimedCost(Value, frozen=True, kw_only=True):
    """What one side needed outside of what it claims, in one group: microseconds a call."""

    fed_us: float
    collected_us: float
    begun_us: float  # on fresh inputs more than on known ones: caches, clocks, pipelines are cold

    @classmethod
    def of(cls, blocks: TimedBlocks) -> UnclaimedCost:
        """Return the mean of a side's two turns; one that was not fed is held against the other."""
        first, second = blocks
        proofs = [first.fresh or second.fresh, second.fresh or first.fresh]
        pairs = [(block.us, fresh) for block, fresh in zip(blocks, proofs, strict=True) if fresh]
        return cls(
            fed_us=mean(fresh.fed_us for _us, fresh in pairs),
            collected_us=mean(fresh.collected_us for _us, fresh in pairs),
            begun_us=mean(max(0.0, fresh.us - us) for us, fresh in pairs),
        )


CostOf = Callable[[UnclaimedCost], float]


def _fed(cost: UnclaimedCost) -> float:
    return cost.fed_us


def _collected(cost: UnclaimedCost) -> float:
    return cost.collected_us


def _begun(cost: UnclaimedCost) -> float:
    return cost.begun_us


OUTSIDE_BLOCK_COSTS: tuple[CostOf, ...] = (_fed, _collected)
ALL_COSTS: tuple[CostOf, ...] = (*OUTSIDE_BLOCK_COSTS, _begun)


def unclaimed_us(claims: Sequence[GroupClaim]) -> float:
    """Return what the candidate's calls need more than they claim; 0 if it may be an accident."""
    return _unclaimed(claims, ALL_COSTS, SURE_DEVIATIONS)


def is_doubtful(claims: Sequence[GroupClaim]) -> bool:
    """Whether more groups are wanted before these are believed."""
    claimed = median(block.us for claim in claims for block in claim.candidate)
    return (
        penalty_us(claims) > 0
        or _unclaimed(claims, ALL_COSTS, LIKELY_DEVIATIONS) > GROSS_RATIO * claimed
    )


def counted_groups(
    earlier: Sequence[GroupClaim], claims: Sequence[GroupClaim]
) -> Sequence[GroupClaim]:
    """Return the groups that figures are made of, after `earlier` ones of a process were doubted.

    Who leaves no doubt in a second process is believed there.  Else all groups of both are counted:
    an accident does not happen to most of them.
    """
    return [*earlier, *claims] if earlier and is_doubtful(claims) else claims


def unclaimed_outside_block_us(claims: Sequence[GroupClaim]) -> float:
    """Return what of that is needed outside of its blocks: while it is fed, or collected from."""
    return _unclaimed(claims, OUTSIDE_BLOCK_COSTS, SURE_DEVIATIONS)


def _unclaimed(claims: Sequence[GroupClaim], costs: Sequence[CostOf], sure: float) -> float:
    groups = calm_groups(claims)
    mine = [claim.candidate for claim in groups]
    theirs = [claim.reference for claim in groups]
    few = len(groups) < ENOUGH_GROUPS
    cold_us = _cold_us(groups)
    found = []
    for ours, others, share in (
        (mine, theirs, 0.25),
        (_fastest_half(mine), _fastest_half(theirs), 0.5),
    ):
        allowed = _bounded(_needed(others), cold_us - COLD_TIMES * _claimed(ours))
        found.append(_excess(_needed(ours), allowed, costs, share=share, sure=sure, few=few))
    return max(found)


def _needed(turns: Sequence[TimedBlocks]) -> list[UnclaimedCost]:
    return [UnclaimedCost.of(blocks) for blocks in turns]


def _claimed(turns: Sequence[TimedBlocks]) -> float:
    return median(block.us for blocks in turns for block in blocks)


def _cold_us(claims: Sequence[GroupClaim]) -> float:
    """Return what cold caches alone cost the reference, on a host; 0 where nobody can tell.

    Strangers cost both sides the same, whatever a call takes: only calm groups say.
    """
    known = [
        UnclaimedCost.of(claim.reference).begun_us
        for claim in claims
        if claim.cpu_wait_share <= MAX_CALM_WAIT_SHARE and not claim.on_gpu
    ]
    return min(known, default=0.0)


def _bounded(needed: Sequence[UnclaimedCost], over_us: float) -> list[UnclaimedCost]:
    """Return the same without that part of a cold beginning that excuses nothing."""
    less = max(0.0, over_us)
    return [msgspec.structs.replace(each, begun_us=each.begun_us - less) for each in needed]


def _fastest_half(turns: Sequence[TimedBlocks]) -> Sequence[TimedBlocks]:
    """Return the half in which a side claims to be fastest."""
    ranked = sorted(turns, key=lambda blocks: sum(block.us for block in blocks))
    return ranked[: (len(ranked) + 1) // 2]


def _excess(
    mine: Sequence[UnclaimedCost],
    theirs: Sequence[UnclaimedCost],
    costs: Sequence[CostOf],
    *,
    share: float,
    sure: float,
    few: bool,
) -> float:
    """Return how much more is needed, cost by cost or (who varies where he works) all together.

    All together only where groups are few: one of several costs soon looks odd by accident.
    """

    def more(cost: CostOf) -> float:
        return quantile_excess(
            [cost(each) for each in mine], [cost(each) for each in theirs], share, sure
        )

    whole = more(lambda needed: sum(cost(needed) for cost in costs))
    return whole if few else max(whole, sum(map(more, costs)))


def quantile_excess(
    mine: Sequence[float], theirs: Sequence[float], share: float, sure: float
) -> float:
    """Return how much higher one quantile is in `mine`; 0 where that may be an accident.

    They have to differ by more than both may be off: `sure` standard deviations of their ranks.
    """
    values, places = [], []
    for ranked, sign in ((sorted(mine), -1), (sorted(theirs), 1)):
        count = len(ranked)
        place = min(count - 1, int(share * count))
        deviations = sure * math.sqrt(share * (1 - share) * count)
        reach = math.ceil(deviations) if count < ENOUGH_GROUPS else round(deviations)
        values.append(ranked[place])
        places.append(ranked[min(count - 1, max(0, place + sign * reach))])
    return values[0] - values[1] if places[0] > places[1] else 0.0


def tolerated_us(claims: Sequence[GroupClaim]) -> float:
    """Return what places, clocks and cold caches may make a call of fresh inputs longer."""
    reference = _needed([claim.reference for claim in claims])
    fed, collected = (_quartile([cost(each) for each in reference]) for cost in OUTSIDE_BLOCK_COSTS)
    far = _calls(claims) <= FEW_CALLS or claims[0].on_gpu
    share = TRANSFER_SHARE if far else TRANSFER_SHARE_CACHED
    return cold_us(claims) + share * (fed + collected)


def cold_us(claims: Sequence[GroupClaim]) -> float:
    """Return how much of that is in the call itself: it says nothing of how it was fed."""
    calls = _calls(claims)
    claimed = median(block.us for claim in claims for block in claim.candidate)
    share = UNPROVEN_SHARE_FEW_CALLS if calls <= FEW_CALLS else UNPROVEN_SHARE
    return share * claimed + COLD_US / calls


def _calls(claims: Sequence[GroupClaim]) -> float:
    return median(fresh.calls for fresh in _fresh(claims))


def claimed_us(claims: Sequence[GroupClaim]) -> float:
    """Return the microseconds a call that the candidate's blocks on fresh inputs took."""
    return median(fresh.us for fresh in _fresh(claims))


def _fresh(claims: Sequence[GroupClaim]) -> list[FreshBlock]:
    return [block.fresh for claim in claims for block in claim.candidate if block.fresh]


def proven_us(claims: Sequence[GroupClaim]) -> float:
    """Return the same with everything that it did outside its blocks."""
    return claimed_us(claims) + unclaimed_outside_block_us(claims)


def is_impossible(claims: Sequence[GroupClaim]) -> bool:
    """Whether the claim is much less than what was needed, beyond what a busy machine explains.

    Short of that the time elsewhere is only added: nothing is gained by it, and nobody is refused.
    Nor is anybody by a few groups: where each takes long, strangers may have been in all of them.
    """
    if len(claims) < ENOUGH_GROUPS:
        return False
    call = _quartile([block.us for claim in claims for block in claim.reference])
    needed = _needed([claim.reference for claim in claims])
    around = _quartile([_fed(each) + _collected(each) for each in needed])
    least = max(IMPOSSIBLE_RATIO * claimed_us(claims), around, call / 2)
    return unclaimed_outside_block_us(claims) > least


def _quartile(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 4]


def penalty_us(claims: Sequence[GroupClaim]) -> float:
    """Return what is missing from the claims beyond what is explained, a call."""
    lacking, known = unclaimed_us(claims), _unclaimed(claims, (_begun,), SURE_DEVIATIONS)
    # A tiny call is fed for longer than it takes: that excuses no result which is remembered, and
    # where groups are few it does not hide one, either.
    if lacking > tolerated_us(claims) or known > cold_us(claims):
        return max(lacking, known)
    return 0.0


def audited_timing(claims: Sequence[GroupClaim]) -> Timing:
    """Return the figures that are proven: what was done elsewhere, or only once, is added."""
    more_us = penalty_us(claims)
    found = timing_of([claim.with_penalty(more_us) for claim in claims])
    return msgspec.structs.replace(found, penalty_us=more_us)
