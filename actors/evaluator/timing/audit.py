"""What a candidate claims is compared with all that it needed: work done elsewhere is added.

Pure: no clock, no process.  `policy` has the rule in ten sentences and the numbers.  A claim is the
longest block of a turn.  Calls on fresh inputs in the same group check it: setting the inputs, the
calls, and collecting the outputs are all timed.  The reference does the same and has no reason to
work outside its calls, nor to cache results.  So what the candidate needs more than the reference
is work of its calls, and is added to all of them.

Two questions are asked.  Does the candidate need more in the lower quartile of all groups?  Then it
always does.  Does it need more in the median of those groups in which it claims to be fastest?
Then the reported median comes from groups that can't be trusted, though others look honest.
Contention in some blocks of either side changes neither quantile.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import mean, median

import msgspec

from actors.evaluator.timing.timing_policy import POLICY
from actors.evaluator.timing.timing_statistics import (
    TimedGroup,
    Timing,
    calm_groups,
    is_calm,
    timing_of,
)
from protocol.values import Value


class FreshBlock(Value, frozen=True, kw_only=True):
    """A block of calls on fresh inputs: microseconds a call, and what its transfers took."""

    calls: int
    us: float
    input_us: float = 0.0  # setting the inputs
    output_us: float = 0.0  # collecting the outputs


class TimedBlock(Value, frozen=True, kw_only=True):
    """The longest block of one turn, microseconds a call, and the fresh block that checks it."""

    us: float
    fresh: FreshBlock | None = None  # None: the other turn of this side has one


TimedBlocks = tuple[TimedBlock, TimedBlock]


class GroupClaim(Value, frozen=True, kw_only=True):
    """One group: what each side claims in its two turns, and what checks these claims."""

    reference: TimedBlocks
    candidate: TimedBlocks
    cpu_wait_share: float = 0.0
    on_gpu: bool = False

    @property
    def as_group(self) -> TimedGroup:
        """The claimed times alone."""
        return self.with_penalty(0.0)

    def with_penalty(self, penalty_us: float) -> TimedGroup:
        """Return the claimed times with microseconds added to each of the candidate's calls."""
        first, second = (block.us for block in self.reference)
        third, fourth = (block.us for block in self.candidate)
        if penalty_us:  # one turn alone may lack the time, so the turns are not told apart
            third = fourth = (third + fourth) / 2 + penalty_us
        return TimedGroup(
            reference=(first, second), candidate=(third, fourth), cpu_wait_share=self.cpu_wait_share
        )


class UnclaimedCost(Value, frozen=True, kw_only=True):
    """What one side needed besides its claim, in one group: microseconds a call."""

    input_us: float  # setting the inputs
    output_us: float  # collecting the outputs
    cold_start_us: float  # fresh block beyond the claim: cold caches, clocks, pipelines

    @classmethod
    def of(cls, blocks: TimedBlocks) -> UnclaimedCost:
        """Return the mean of a side's two turns; a turn without a fresh block uses the other's."""
        first, second = blocks
        fresh_blocks = [first.fresh or second.fresh, second.fresh or first.fresh]
        pairs = [
            (block.us, fresh) for block, fresh in zip(blocks, fresh_blocks, strict=True) if fresh
        ]
        return cls(
            input_us=mean(fresh.input_us for _us, fresh in pairs),
            output_us=mean(fresh.output_us for _us, fresh in pairs),
            cold_start_us=mean(max(0.0, fresh.us - us) for us, fresh in pairs),
        )


CostOf = Callable[[UnclaimedCost], float]


def _input_cost(cost: UnclaimedCost) -> float:
    return cost.input_us


def _output_cost(cost: UnclaimedCost) -> float:
    return cost.output_us


def _cold_start_cost(cost: UnclaimedCost) -> float:
    return cost.cold_start_us


COSTS_OUTSIDE_BLOCK: tuple[CostOf, ...] = (_input_cost, _output_cost)
ALL_COSTS: tuple[CostOf, ...] = (*COSTS_OUTSIDE_BLOCK, _cold_start_cost)


# --- how much more the candidate needs than the reference ----------------------------------------


def unclaimed_us(claims: Sequence[GroupClaim]) -> float:
    """Return what the candidate's calls need beyond their claim; 0 if chance may explain it."""
    return _unclaimed(claims, ALL_COSTS, POLICY.sure_deviations)


def unclaimed_outside_block_us(claims: Sequence[GroupClaim]) -> float:
    """Return the part of it outside the blocks: while inputs are set or outputs collected."""
    return _unclaimed(claims, COSTS_OUTSIDE_BLOCK, POLICY.sure_deviations)


def _unclaimed(claims: Sequence[GroupClaim], costs: Sequence[CostOf], deviations: float) -> float:
    """Return the larger excess of two quantiles: of all groups, and of each fastest half."""
    groups = calm_groups(claims)
    candidate = [claim.candidate for claim in groups]
    reference = [claim.reference for claim in groups]
    total_only = len(groups) < POLICY.enough_groups
    cold_start_us = _reference_cold_start_us(groups)
    found = []
    for candidates, references, quantile in (
        (candidate, reference, 0.25),
        (_fastest_half(candidate), _fastest_half(reference), 0.5),
    ):
        unexplained_us = cold_start_us - POLICY.max_cold_start_ratio * _median_claim_us(candidates)
        allowed = _without_cold_start(_costs_of(references), unexplained_us)
        found.append(
            _excess(
                _costs_of(candidates),
                allowed,
                costs,
                quantile=quantile,
                deviations=deviations,
                total_only=total_only,
            )
        )
    return max(found)


def _costs_of(turns: Sequence[TimedBlocks]) -> list[UnclaimedCost]:
    return [UnclaimedCost.of(blocks) for blocks in turns]


def _median_claim_us(turns: Sequence[TimedBlocks]) -> float:
    return median(block.us for blocks in turns for block in blocks)


def _reference_cold_start_us(claims: Sequence[GroupClaim]) -> float:
    """Return what cold caches alone cost the reference, on a host; 0 if no calm group shows it.

    Contention costs both sides the same, however long a call is, so only calm groups are used.
    """
    known = [
        UnclaimedCost.of(claim.reference).cold_start_us
        for claim in claims
        if is_calm(claim) and not claim.on_gpu
    ]
    return min(known, default=0.0)


def _without_cold_start(costs: Sequence[UnclaimedCost], us: float) -> list[UnclaimedCost]:
    """Return the costs less the part of their cold start that explains nothing."""
    less_us = max(0.0, us)
    return [
        msgspec.structs.replace(cost, cold_start_us=cost.cold_start_us - less_us) for cost in costs
    ]


def _fastest_half(turns: Sequence[TimedBlocks]) -> Sequence[TimedBlocks]:
    """Return the half of the groups in which a side claims to be fastest."""
    ranked = sorted(turns, key=lambda blocks: sum(block.us for block in blocks))
    return ranked[: (len(ranked) + 1) // 2]


def _excess(
    candidate: Sequence[UnclaimedCost],
    reference: Sequence[UnclaimedCost],
    costs: Sequence[CostOf],
    *,
    quantile: float,
    deviations: float,
    total_only: bool,
) -> float:
    """Return how much more the candidate needs: the larger of cost by cost and of the total.

    The total also finds a candidate that works now in one place, now in another.  With few groups
    (`total_only`) single costs are too noisy.
    """

    def excess_of(cost: CostOf) -> float:
        return quantile_excess(
            [cost(each) for each in candidate],
            [cost(each) for each in reference],
            quantile,
            deviations,
        )

    total = excess_of(lambda each: sum(cost(each) for cost in costs))
    return total if total_only else max(total, sum(map(excess_of, costs)))


def quantile_excess(
    candidate: Sequence[float], reference: Sequence[float], quantile: float, deviations: float
) -> float:
    """Return how much higher the candidate's quantile is; 0 where that may be chance.

    The quantiles must differ by more than both may be off: `deviations` standard deviations of
    their ranks.
    """
    values, bounds = [], []
    for ranked, sign in ((sorted(candidate), -1), (sorted(reference), 1)):
        count = len(ranked)
        rank = min(count - 1, int(quantile * count))
        rank_error = deviations * math.sqrt(quantile * (1 - quantile) * count)
        reach = math.ceil(rank_error) if count < POLICY.enough_groups else round(rank_error)
        values.append(ranked[rank])
        bounds.append(ranked[min(count - 1, max(0, rank + sign * reach))])
    return values[0] - values[1] if bounds[0] > bounds[1] else 0.0


# --- what is tolerated, and what is added --------------------------------------------------------


def tolerated_us(claims: Sequence[GroupClaim]) -> float:
    """Return what memory placement, clock speeds and cold caches may add to a fresh call."""
    reference = _costs_of([claim.reference for claim in claims])
    input_us, output_us = (
        _quartile([cost(each) for each in reference]) for cost in COSTS_OUTSIDE_BLOCK
    )
    is_slow_transfer = _calls_a_block(claims) <= POLICY.few_calls or claims[0].on_gpu
    share = POLICY.transfer_share if is_slow_transfer else POLICY.transfer_share_cached
    return tolerated_in_block_us(claims) + share * (input_us + output_us)


def tolerated_in_block_us(claims: Sequence[GroupClaim]) -> float:
    """Return the part of it within the call itself, where transfers of inputs play no role."""
    calls = _calls_a_block(claims)
    claimed = median(block.us for claim in claims for block in claim.candidate)
    is_few = calls <= POLICY.few_calls
    share = POLICY.unproven_share_few_calls if is_few else POLICY.unproven_share
    return share * claimed + POLICY.cold_launch_us / calls


def penalty_us(claims: Sequence[GroupClaim]) -> float:
    """Return what is added to each call: the unclaimed cost, if it is more than is tolerated."""
    all_us = unclaimed_us(claims)
    cold_start_us = _unclaimed(claims, (_cold_start_cost,), POLICY.sure_deviations)
    # Setting the inputs of a tiny call takes longer than the call.  That explains no cached result,
    # and where groups are few it does not hide one, either.
    if all_us > tolerated_us(claims) or cold_start_us > tolerated_in_block_us(claims):
        return max(all_us, cold_start_us)
    return 0.0


def audited_timing(claims: Sequence[GroupClaim]) -> Timing:
    """Return the figures with the penalty: what was done elsewhere, or only once, is added."""
    added_us = penalty_us(claims)
    found = timing_of([claim.with_penalty(added_us) for claim in claims])
    return msgspec.structs.replace(found, penalty_us=added_us)


# --- doubt and refusal ---------------------------------------------------------------------------


def is_doubtful(claims: Sequence[GroupClaim]) -> bool:
    """Whether the candidate must be timed in a second process before its figures are believed."""
    claimed = median(block.us for claim in claims for block in claim.candidate)
    return (
        penalty_us(claims) > 0
        or _unclaimed(claims, ALL_COSTS, POLICY.likely_deviations) > POLICY.doubt_ratio * claimed
    )


def counted_groups(
    earlier: Sequence[GroupClaim], claims: Sequence[GroupClaim]
) -> Sequence[GroupClaim]:
    """Return the groups that figures are made of, after `earlier` ones of a process were doubted.

    A candidate that leaves no doubt in its second process is believed there.  Otherwise all groups
    of both processes count: chance does not affect most of them.
    """
    return [*earlier, *claims] if earlier and is_doubtful(claims) else claims


def is_impossible(claims: Sequence[GroupClaim]) -> bool:
    """Whether the claim is much less than what was needed, beyond what a busy machine explains.

    A smaller unclaimed cost is only added: the candidate gains nothing by it and is not refused.
    A few groups refuse no candidate: where each takes long, contention may have been in all.
    """
    if len(claims) < POLICY.enough_groups:
        return False
    call_us = _quartile([block.us for claim in claims for block in claim.reference])
    costs = _costs_of([claim.reference for claim in claims])
    transfer_us = _quartile([_input_cost(cost) + _output_cost(cost) for cost in costs])
    least_us = max(POLICY.impossible_ratio * fresh_claim_us(claims), transfer_us, call_us / 2)
    return unclaimed_outside_block_us(claims) > least_us


def fresh_claim_us(claims: Sequence[GroupClaim]) -> float:
    """Return the microseconds a call that the candidate's fresh blocks took."""
    return median(fresh.us for fresh in _fresh_blocks(claims))


def needed_us(claims: Sequence[GroupClaim]) -> float:
    """Return the same with all that the candidate did outside its blocks."""
    return fresh_claim_us(claims) + unclaimed_outside_block_us(claims)


def _calls_a_block(claims: Sequence[GroupClaim]) -> float:
    return median(fresh.calls for fresh in _fresh_blocks(claims))


def _fresh_blocks(claims: Sequence[GroupClaim]) -> list[FreshBlock]:
    return [block.fresh for claim in claims for block in claim.candidate if block.fresh]


def _quartile(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 4]
