"""The race: reference and candidate timed in turn by the judge's own clock, on calls it verifies.

Both are runners, forked from the same zygote, told the same things.  No figure comes from a child:
the clock is read on our side of them (`sides`).  Every call of a block has inputs that were drawn
for it alone, in storage that held others before.  After a block the outputs of all its calls must
be handed over, on the clock, and some are compared that were chosen only then.  So what a candidate
claims (its block) can be held against everything it needed, from the first byte of inputs to the
last byte of outputs; in between windows it is held still.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from actors.evaluator import proofs, timing
from actors.evaluator.devices.sensors import Reading, Sensors
from actors.evaluator.examiner import Hand
from actors.evaluator.isolation.child import Child
from actors.evaluator.proofs import Block, Claim, Fresh
from actors.evaluator.racing.inside import Inside
from actors.evaluator.racing.outside import Outside
from actors.evaluator.racing.pace import Pace
from actors.evaluator.racing.results import Results
from actors.evaluator.racing.sides import SETTLE_S, Refused, Sides
from actors.evaluator.racing.stillness import Stillness
from actors.evaluator.standard import Standard
from actors.evaluator.timing import Side, Timing
from actors.evaluator.verdicts import Fault
from actors.evaluator.wire.layout import total_bytes
from actors.evaluator.wire.runner_orders import Bench, Clear, FromRunner
from protocol.values import Word

# Inputs and outputs of one block's fresh calls: little, where it is drawn and copied by the host.
HAND_BYTES = 1 << 24
WARM_S = 0.3
REVIVING = 4  # blocks until a card is what it was, when gigabytes were fed
ALONE, MOST_ALONE, ALONE_S = 3, 20, 0.5  # windows of the reference alone, and their time
WARM_CALLS = 3


class Race:
    """One candidate against the reference."""

    def __init__(
        self,
        standard: Standard,
        candidate: Child[FromRunner],
        stillness: Stillness,
        sensors: Sensors,
        *,
        time_s: float,
        call_s: float,
        floor_us: float,
        earlier: Sequence[Claim] = (),
    ) -> None:
        """`earlier`: what the same candidate claimed in another process, and was doubted."""
        self.standard = standard
        self.reading: Reading | None = None  # of the card's sensors, after the last group
        self.claims: list[Claim] = []
        self._earlier = earlier
        self.doubted = False  # whether more may have been needed than was claimed
        self._sides = Sides(standard, candidate, stillness, call_s=call_s)
        self._sensors = sensors
        self._floor_us = floor_us  # what no machine like this can beat
        self._time_s = time_s
        facts = standard.facts
        self._each = max(1, total_bytes(facts.inputs) + total_bytes(facts.outputs))
        self._results = Results(standard, self._each)
        self._way: Inside | Outside = Inside(standard, self._sides, self._results, self._each)
        self._turned = False
        self._on_host = standard.on_host
        self._pace = Pace(
            each_bytes=self._each,
            hand_bytes=facts.room if standard.lends else HAND_BYTES,
            block_s=timing.BLOCK_S if self._on_host else timing.CARD_BLOCK_S,
            time_s=time_s,
        )
        self._overhead_s = self._fresh_overhead_s = 0.0  # of a block, of one on fresh inputs
        self._draw_s = 0.0  # for one call's inputs

    def run(self, on_group: Callable[[int], None] = lambda _groups: None) -> Timing | Fault:
        """Warm up, then time groups until enough is known; the candidate's fault is a value."""
        try:
            self._begin_alike()
            self._choose_way()
            self._warm()
            self._overhead_s, self._fresh_overhead_s = self._way.overheads_s()
            return self._groups(on_group)
        except Refused as refused:
            return refused.fault
        finally:
            self._way.close()
            self._sides.rest()

    def _begin_alike(self) -> None:
        """Have both sides lay out their memory anew: where gigabytes lie is worth some per cent."""
        for side in timing.HALVES[0]:
            with self._sides.moving(side):
                self._sides.ask(side, Clear())

    def _choose_way(self) -> None:
        """Have inputs and outputs moved from outside, where that can be done."""
        outside = Outside(self.standard, self._sides, self._results, self._each)
        if self._on_host and outside.possible():
            self._way = outside

    def _groups(self, on_group: Callable[[int], None]) -> Timing | Fault:
        began = time.monotonic()
        groups: list[timing.Group] = []
        while not timing.enough(groups, time.monotonic() - began, self._time_s):
            self.claims.append(self._group())
            groups.append(self.claims[-1].best)
            on_group(len(groups))
        self.doubted = proofs.doubtful(self.claims)
        claims = proofs.counted(self._earlier, self.claims)
        if proofs.impossible(claims):
            reason = (
                "its calls return long before their work is done, or after it was done elsewhere: "
                f"it claims {proofs.claimed_us(claims):.4g} µs a call, from fresh inputs to "
                f"outputs it takes {proofs.proven_us(claims):.4g} µs"
            )
            return Fault(word=Word.REJECTED, stage="time", reason=reason)
        timed = proofs.verified(claims)
        if timed.median_us < self._floor_us:
            reason = f"{timed.median_us:.4g} µs a call is less than moving its outputs can take"
            return Fault(word=Word.REJECTED, stage="time", reason=reason)
        return timed

    def _group(self) -> Claim:
        """Time one group A B B A."""
        self._sides.waiting()
        blocks = self._blocks_again() if self._pace.again else self._blocks_fresh()
        self._sides.insist_still(everywhere=True)
        self.reading = self._sensors.read()
        throttled = self.reading is not None and self.reading.throttled
        return Claim(
            reference=(blocks["reference"][0], blocks["reference"][1]),
            candidate=(blocks["candidate"][0], blocks["candidate"][1]),
            waiting=1.0 if throttled else self._sides.waiting(),
            on_card=not self._on_host,
        )

    def _blocks_fresh(self) -> dict[Side, list[Block]]:
        """Return blocks on fresh inputs, each half of the group on its own."""
        blocks: dict[Side, list[Block]] = {"reference": [], "candidate": []}
        for half in self._order():
            with self._dealt() as hand:
                for side in half:
                    fresh = self._window(side, hand)
                    blocks[side].append(Block(us=fresh.us, fresh=fresh))
                self._results.verify(hand)
        return blocks

    def _blocks_again(self) -> dict[Side, list[Block]]:
        """Return long blocks on inputs that both were fed, and proved, right before.

        All four come after both were fed: who is fed first finds a card that has been idle.
        """
        (one, other), _half = self._order()
        known: dict[Side, list[float]] = {one: [], other: []}
        with self._dealt() as hand:
            fresh = {side: self._window(side, hand) for side in (one, other)}
            if not self._on_host:  # a card that was fed comes back to its speed only after a while
                self._repeat(one, REVIVING if self._pace.large else 1)
            for side, times in ((one, 1), (other, 2), (one, 1)):
                known[side] += self._repeat(side, times)
            self._results.verify(hand)
        return {
            side: [Block(us=first, fresh=fresh[side]), Block(us=second)]
            for side, (first, second) in known.items()
        }

    def _order(self) -> tuple[tuple[Side, Side], tuple[Side, Side]]:
        """Return who comes when in the next group: A B B A, on the host in turn with B A A B.

        There it is worth some per cent who finds the caches as the referee left them; on a card it
        is worth so little that the two orders would only take more groups to agree.
        """
        self._turned = self._on_host and not self._turned
        first, second = timing.HALVES
        return (second, first) if self._turned else (first, second)

    def alone_us(self, beside_us: float) -> float:
        """Return what the reference takes once the candidate is gone: the slowest of some windows.

        Where it was slower beside the candidate there are many windows: calls that are little more
        than launches take 40 µs in one window and 60 in the next.
        """
        taken: list[float] = []
        began = time.monotonic()
        try:
            while len(taken) < 2 or (
                len(taken) < (ALONE if max(taken) >= beside_us else MOST_ALONE)
                and time.monotonic() - began < ALONE_S
            ):
                with self._dealt() as hand:
                    fresh_us = self._window("reference", hand).us
                    again = self._pace.again
                    taken += self._repeat("reference", 1) if again else [fresh_us]
        finally:
            self._way.close()
            self._sides.rest()
        return max(taken)

    @contextmanager
    def _dealt(self) -> Iterator[Hand]:
        """Give fresh inputs for one block's calls; nobody keeps them afterwards."""
        began = time.monotonic()
        hand = self._way.deal(self._pace.calls)
        self._draw_s = (time.monotonic() - began) / self._pace.calls
        try:
            yield hand
        finally:
            hand.close()
            if self.standard.alive:
                self.standard.examiner.forget(hand.first, self._pace.calls)

    def _window(self, side: Side, hand: Hand) -> Fresh:
        """Time one block of calls on fresh inputs."""
        calls = len(hand.inputs)
        spent = self._way.fresh(side, hand)
        return Fresh(
            calls=calls,
            us=self._net_us(spent.block_s - self._fresh_overhead_s, calls),
            fed_us=spent.fed_s / calls * 1e6,
            collected_us=spent.collected_s / calls * 1e6,
        )

    def _repeat(self, side: Side, times: int) -> list[float]:
        """Return the microseconds a call of long blocks on inputs that were there before."""
        calls, wanted = self._pace.calls, self._pace.long(side)
        taken = []
        with self._sides.moving(side):
            time.sleep(SETTLE_S if self._on_host else 0.0)
            for _block in range(times):
                # Once round, off the clock: one block comes after itself, another after others.
                self._sides.ask(side, Bench(calls=calls, slots=calls))
                seconds, _answer = self._sides.ask(side, Bench(calls=wanted, slots=calls))
                taken.append(self._net_us(seconds - self._overhead_s, wanted))
        return taken

    def _net_us(self, seconds: float, calls: int) -> float:
        return max(seconds, 1e-9) / calls * 1e6

    def _warm(self) -> None:
        """Give both sides windows until they are warm and the calls of a block are known."""
        warm_s = min(WARM_S, self._time_s / 10)
        began = time.monotonic()
        for round_ in range(1000):
            claim = self._group()
            self._pace.plan(claim, self._draw_s)
            spent = time.monotonic() - began
            if spent >= self._time_s or (round_ + 1 >= WARM_CALLS and spent >= warm_s):
                return
