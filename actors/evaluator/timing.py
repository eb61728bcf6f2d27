"""The figures behind a verdict's microseconds: which block comes next, and how sure we are.

Pure: no clock, no process.  Reference and candidate are timed in blocks of calls, in groups
A B B A, so that a machine that slowly warms up or gets busy hurts both sides alike.  One group
gives one ratio; the reported speedup is the groups' median, with an interval that assumes no
distribution.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import median
from typing import Literal, TypeVar

import msgspec

from protocol.values import Value

Side = Literal["reference", "candidate"]
HALVES: tuple[tuple[Side, Side], ...] = (("reference", "candidate"), ("candidate", "reference"))

BLOCK_S = 0.02  # a block lasts at least this long
CARD_BLOCK_S = 0.01  # on a card, where nobody else's threads come between
MAX_CALLS = 50_000
WIDTH = 0.01  # enough is known when the interval is narrower than this share of the ratio
CALM = 0.3  # a group in which tasks waited longer than this share is disturbed
LEAST_GROUPS = 8  # before the interval may end it
FEWEST_GROUPS = 3  # even when time is up
# Two-sided 95 % points of Student's t, for fewer groups than a sign interval can use.
STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}


class Group(Value, frozen=True, kw_only=True):
    """Microseconds a call, two blocks of each side."""

    reference: tuple[float, float]
    candidate: tuple[float, float]
    waiting: float = 0.0  # the share of its time in which some task waited for a processor

    @property
    def log_ratio(self) -> float:
        """The logarithm of reference over candidate: above 0 the candidate is faster."""
        ours = math.log(self.reference[0]) + math.log(self.reference[1])
        theirs = math.log(self.candidate[0]) + math.log(self.candidate[1])
        return (ours - theirs) / 2


class Timing(Value, frozen=True, kw_only=True):
    """What was measured."""

    median_us: float
    reference_us: float
    speedup: float
    ci95: tuple[float, float] | None
    groups: int  # that the figures are made of
    disturbed: int = 0  # that were left out
    busy: int = 0  # that were disturbed and had to be used all the same


# A group, or what is claimed in one.
Waiting = TypeVar("Waiting", "Group", "Claim")


def calls_a_block(call_s: float, block_s: float = BLOCK_S) -> int:
    """Return how many calls make a block, when one takes `call_s` seconds."""
    if call_s * MAX_CALLS <= block_s:
        return MAX_CALLS
    return math.ceil(block_s / call_s)


def calm(groups: Sequence[Waiting]) -> Sequence[Waiting]:
    """Return the groups that nobody disturbed; all of them, when these are too few to do.

    On a shared machine a disturbed group is off by any factor: threads of one side wait for each
    other while a stranger has their core.
    """
    quiet = [group for group in groups if group.waiting <= CALM]
    return quiet if len(quiet) >= LEAST_GROUPS else groups


def summary(measured: Sequence[Group]) -> Timing:
    """Return the figures of the groups so far (at least one)."""
    groups = calm(measured)
    logs = [group.log_ratio for group in groups]
    inside = interval(logs)
    return Timing(
        median_us=median([us for group in groups for us in group.candidate]),
        reference_us=median([us for group in groups for us in group.reference]),
        speedup=math.exp(median(logs)),
        ci95=None if inside is None else (math.exp(inside[0]), math.exp(inside[1])),
        groups=len(groups),
        disturbed=len(measured) - len(groups),
        busy=sum(group.waiting > CALM for group in groups),
    )


def enough(measured: Sequence[Group], elapsed_s: float, time_s: float) -> bool:
    """Whether to stop: the interval is narrow, or the time is up."""
    if elapsed_s >= time_s and len(measured) >= FEWEST_GROUPS:
        return True
    groups = calm(measured)
    if len(groups) < LEAST_GROUPS:
        return False
    inside = interval([group.log_ratio for group in groups])
    return inside is not None and inside[1] - inside[0] < WIDTH


def interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return a 95 % interval of the median of what `values` are drawn from.

    From six values on it is the sign interval: order statistics, whatever the distribution.
    With fewer it takes them to be normal; with one nothing is known.
    """
    count = len(values)
    if count < 2:
        return None
    if count in STUDENT:
        middle = sum(values) / count
        spread = math.sqrt(sum((value - middle) ** 2 for value in values) / (count - 1))
        reach = STUDENT[count] * spread / math.sqrt(count)
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


# --- what is claimed and what is proven ---------------------------------------------------------

PROVEN = 0.05  # the share of a claim that may be missing from it before it is added
# Of what feeding and collecting take: gigabytes are fed at a speed that depends on where they lie.
PLACES = 0.1
# The same, of known inputs against fresh ones: where the allocator puts gigabytes makes 11 %.
UNEXPLAINED, FEW_CALLS = 0.15, 2
COLD_US = 100.0  # a block: launching on a host whose caches are cold, in nobody's call
QUARTILE_REACH = 0.71  # ranks, times the root of the count: where a quartile is with 90 %
IMPOSSIBLE = 2.0  # more than this share of the claim elsewhere: it is refused
GROSS = 0.5  # a block that lacks more than this share of its claim is never taken as it is
CHANCE = 2.0  # standard deviations that one side's odd groups may be more than the other's


class Fresh(Value, frozen=True, kw_only=True):
    """Calls on inputs of their own, microseconds a call: feeding, the calls, collecting."""

    calls: int
    us: float
    fed_us: float = 0.0
    collected_us: float = 0.0


class Block(Value, frozen=True, kw_only=True):
    """The longest block of one turn, microseconds a call, and what proves it, where it was fed."""

    us: float
    fresh: Fresh | None = None


Cost = Callable[[float, Fresh], float]


class Claim(Value, frozen=True, kw_only=True):
    """One group: what was claimed in it, and what proves it."""

    reference: tuple[Block, Block]
    candidate: tuple[Block, Block]
    waiting: float = 0.0

    @property
    def best(self) -> Group:
        """The longest blocks that there are."""
        first, second = self.reference
        third, fourth = self.candidate
        return Group(
            reference=(first.us, second.us),
            candidate=(third.us, fourth.us),
            waiting=self.waiting,
        )


def _feeding(_us: float, fresh: Fresh) -> float:
    return fresh.fed_us


def _collecting(_us: float, fresh: Fresh) -> float:
    return fresh.collected_us


def _around(_us: float, fresh: Fresh) -> float:
    return fresh.fed_us + fresh.collected_us


def _beginning(us: float, fresh: Fresh) -> float:
    """Return what fresh inputs cost, a call.

    A block has a beginning: caches and clocks are cold, pipelines empty.  The reference, which has
    no reason to remember results, says what that takes.
    """
    return fresh.us - us


def elsewhere_us(claims: Sequence[Claim]) -> float:
    """Return what the candidate needed more than the reference outside its blocks, a call."""
    return _more(claims, _feeding) + _more(claims, _collecting)


def _of(claims: Sequence[Claim], side: Side, cost: Cost) -> list[float]:
    """Return a side's costs in the blocks that were fed, the least first."""
    blocks = [
        block
        for claim in claims
        for block in (claim.reference if side == "reference" else claim.candidate)
    ]
    return sorted(cost(block.us, block.fresh) for block in blocks if block.fresh is not None)


def _more(claims: Sequence[Claim], cost: Cost) -> float:
    """Return what `cost` is more for the candidate, where that is no accident; else 0.

    Lower quartiles are compared, since a disturbed block says nothing of either side; and they
    have to differ by more than both may be off, as their order statistics say.
    """
    mine, theirs = _of(claims, "candidate", cost), _of(claims, "reference", cost)
    count = len(mine)
    reach = round(QUARTILE_REACH * math.sqrt(count))
    least = mine[max(0, count // 4 - reach)]
    most = theirs[min(count - 1, count // 4 + reach)]
    return mine[count // 4] - theirs[count // 4] if least > most else 0.0


def claimed_us(claims: Sequence[Claim]) -> float:
    """Return the microseconds a call that the candidate's blocks on fresh inputs took."""
    return median(_of(claims, "candidate", lambda _us, fresh: fresh.us))


def proven_us(claims: Sequence[Claim]) -> float:
    """Return the same with everything that it did outside its blocks."""
    return claimed_us(claims) + elsewhere_us(claims)


def impossible(claims: Sequence[Claim]) -> bool:
    """Whether the claim is much less than what was needed, beyond what a busy machine explains.

    Short of that the time elsewhere is only added: nothing is gained by it, and nobody is refused.
    """
    reference = sorted(block.us for claim in claims for block in claim.reference)
    call = reference[len(reference) // 4]
    around = _of(claims, "reference", _around)
    least = max(IMPOSSIBLE * claimed_us(claims), around[len(around) // 4], call / 2)
    return elsewhere_us(claims) > least


def verified(claims: Sequence[Claim]) -> Timing:
    """Return the figures that are proven: what was done elsewhere, or only once, is added.

    It is added group by group: who works elsewhere only now and then, or remembers results in some
    blocks, must not hide behind the others.  Where nothing speaks against the candidate as a whole,
    groups whose claims are far from proven are left out like others that somebody disturbed, and
    gain it nothing either; but if they are half of all, they are what it does.
    """
    usual, quiet = Usual.of(claims), calm(claims)
    doubted = _lacks(claims, usual) or _often_lacks(quiet, usual)

    def far(claim: Claim) -> bool:
        return any(usual.unproven(claim.candidate, GROSS))

    if doubted or 2 * sum(map(far, quiet)) >= len(quiet):
        least = 0.0 if doubted else GROSS
        return summary(
            [_slower(claim.best, usual.unproven(claim.candidate, least)) for claim in claims]
        )
    found = summary([claim.best for claim in claims if not far(claim)])
    return msgspec.structs.replace(found, disturbed=len(claims) - found.groups)


def _lacks(claims: Sequence[Claim], usual: Usual) -> bool:
    """Whether the candidate's least costs are more than the reference's: it lacks it always."""
    more = sum(_more(claims, cost) for cost in (_feeding, _collecting, _beginning))
    return more > median(each for claim in claims for each in usual.explained(claim.candidate))


def _often_lacks(quiet: Sequence[Claim], usual: Usual) -> bool:
    """Whether in more of the groups it is the candidate that lacks something than the reference.

    What disturbs a group hits either side.
    """
    odd = [usual.odd(claim) for claim in quiet]
    mine, theirs = odd.count(1), odd.count(-1)
    return mine - theirs > CHANCE * math.sqrt(mine + theirs)


class Usual(Value, frozen=True, kw_only=True):
    """What feeding, collecting and beginning a block take the reference, microseconds a call.

    It has no reason to work there; lower quartiles, since a disturbed block says nothing of it.
    """

    fed_us: float
    collected_us: float
    begun_us: float

    @classmethod
    def of(cls, claims: Sequence[Claim]) -> Usual:
        """Return it for the groups of one race."""
        costs = [_of(claims, "reference", cost) for cost in (_feeding, _collecting, _beginning)]
        fed_us, collected_us, begun_us = (each[len(each) // 4] for each in costs)
        return cls(fed_us=fed_us, collected_us=collected_us, begun_us=max(0.0, begun_us))

    def odd(self, claim: Claim) -> int:
        """Return 1 where the candidate lacks more than the reference does, -1 for the reverse.

        0 where it is no more than places, clocks and cold caches explain.
        """
        mine, theirs = (
            sum(map(sum, self._missing(blocks))) for blocks in (claim.candidate, claim.reference)
        )
        explained = sum(self.explained(claim.candidate))
        return (mine - theirs > explained) - (theirs - mine > explained)

    def unproven(self, blocks: tuple[Block, Block], least: float = 0.0) -> tuple[float, float]:
        """Return what one side's two blocks lack of what they needed, where it is not explained.

        Nor less than the share `least` of what they claim.
        """
        found = []
        for block, parts, explained in zip(
            blocks, self._missing(blocks), self.explained(blocks), strict=True
        ):
            more = sum(max(0.0, each) for each in parts)
            found.append(more if more > max(explained, least * block.us) else 0.0)
        return found[0], found[1]

    def _missing(self, blocks: tuple[Block, Block]) -> list[tuple[float, ...]]:
        return [
            (
                fresh.fed_us - self.fed_us,
                fresh.collected_us - self.collected_us,
                fresh.us - us - self.begun_us,
            )
            for us, fresh in _proofs(blocks)
        ]

    def explained(self, blocks: tuple[Block, Block]) -> list[float]:
        """Return what places, clocks and cold caches may take of each block, a call."""
        return [
            (UNEXPLAINED if fresh.calls <= FEW_CALLS else PROVEN) * us
            + PLACES * (self.fed_us + self.collected_us)
            + COLD_US / fresh.calls
            for us, fresh in _proofs(blocks)
        ]


def _proofs(blocks: tuple[Block, Block]) -> list[tuple[float, Fresh]]:
    """Return what each block claims, and the fresh calls that it is held against: of its group."""
    first, second = blocks
    pairs = ((first.us, first.fresh or second.fresh), (second.us, second.fresh or first.fresh))
    return [(us, fresh) for us, fresh in pairs if fresh is not None]


def _slower(group: Group, more: tuple[float, float]) -> Group:
    first, second = group.candidate
    return Group(
        reference=group.reference,
        candidate=(first + more[0], second + more[1]),
        waiting=group.waiting,
    )
