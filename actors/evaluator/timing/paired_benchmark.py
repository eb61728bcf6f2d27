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

from actors.evaluator.devices.sensors import GpuSensors, SensorReading
from actors.evaluator.ipc.layout_checks import total_bytes
from actors.evaluator.ipc.runner_orders import CallRepeatedly, FromRunner, ReleaseTensors
from actors.evaluator.reference.fixture import ReferenceFixture
from actors.evaluator.reference.referee_client import InputBatch
from actors.evaluator.sandbox.child_client import ChildClient
from actors.evaluator.sandbox.child_failures import CandidateFault
from actors.evaluator.sandbox.freezer import ProcessFreezer
from actors.evaluator.timing import audit, timing_statistics
from actors.evaluator.timing.audit import FreshBlock, GroupClaim, TimedBlock
from actors.evaluator.timing.block_size import BlockSize
from actors.evaluator.timing.host_transfer import HostTransfer
from actors.evaluator.timing.runner_transfer import RunnerTransfer
from actors.evaluator.timing.sides import SETTLE_S, CandidateFaultError, Sides
from actors.evaluator.timing.spot_checks import SpotChecks
from actors.evaluator.timing.timing_statistics import Side, Timing
from protocol.values import Outcome

# Inputs and outputs of one block's fresh calls: little, where it is drawn and copied by the host.
BATCH_BYTES = 1 << 24
WARM_S = 0.3
GPU_WARM_UP_BLOCKS = 4  # blocks until a card is what it was, when gigabytes were fed
ALONE_BLOCKS, MAX_ALONE_BLOCKS, ALONE_S = (
    3,
    20,
    0.5,
)  # windows of the reference alone, and their time
WARM_CALLS = 3


class PairedBenchmark:
    """One candidate against the reference."""

    def __init__(
        self,
        fixture: ReferenceFixture,
        candidate: ChildClient[FromRunner],
        freezer: ProcessFreezer,
        sensors: GpuSensors,
        *,
        time_s: float,
        call_s: float,
        floor_us: float,
        earlier: Sequence[GroupClaim] = (),
    ) -> None:
        """`earlier`: what the same candidate claimed in another process, and was doubted."""
        self.fixture = fixture
        self.reading: SensorReading | None = None  # of the card's sensors, after the last group
        self.claims: list[GroupClaim] = []
        self._earlier = earlier
        self.is_doubtful = False  # whether more may have been needed than was claimed
        self._sides = Sides(fixture, candidate, freezer, call_s=call_s)
        self._sensors = sensors
        self._floor_us = floor_us  # what no machine like this can beat
        self._time_s = time_s
        facts = fixture.facts
        self._bytes_per_call = max(1, total_bytes(facts.inputs) + total_bytes(facts.outputs))
        self._spot_checks = SpotChecks(fixture, self._bytes_per_call)
        self._transfer: RunnerTransfer | HostTransfer = RunnerTransfer(
            fixture, self._sides, self._spot_checks, self._bytes_per_call
        )
        self._reversed = False
        self._on_host = fixture.on_host
        self._block_size = BlockSize(
            each_bytes=self._bytes_per_call,
            hand_bytes=facts.input_bytes if fixture.uses_device_memory else BATCH_BYTES,
            block_s=timing_statistics.BLOCK_S if self._on_host else timing_statistics.GPU_BLOCK_S,
            time_s=time_s,
        )
        self._overhead_s = self._fresh_overhead_s = 0.0  # of a block, of one on fresh inputs
        self._draw_s = 0.0  # for one call's inputs

    def run(
        self, on_group: Callable[[int], None] = lambda _groups: None
    ) -> Timing | CandidateFault:
        """Warm up, then time groups until enough is known; the candidate's fault is a value."""
        try:
            self._release_both()
            self._choose_transfer()
            self._warm()
            self._overhead_s, self._fresh_overhead_s = self._transfer.overheads_s()
            return self._groups(on_group)
        except CandidateFaultError as refused:
            return refused.fault
        finally:
            self._transfer.close()
            self._sides.thaw_both()

    def _release_both(self) -> None:
        """Have both sides lay out their memory anew: where gigabytes lie is worth some per cent."""
        for side in timing_statistics.HALVES[0]:
            with self._sides.running(side):
                self._sides.ask(side, ReleaseTensors())

    def _choose_transfer(self) -> None:
        """Have inputs and outputs moved from outside, where that can be done."""
        host_transfer = HostTransfer(
            self.fixture, self._sides, self._spot_checks, self._bytes_per_call
        )
        if self._on_host and host_transfer.is_possible():
            self._transfer = host_transfer

    def _groups(self, on_group: Callable[[int], None]) -> Timing | CandidateFault:
        began = time.monotonic()
        groups: list[timing_statistics.TimedGroup] = []
        while not timing_statistics.is_enough(groups, time.monotonic() - began, self._time_s):
            self.claims.append(self._group())
            groups.append(self.claims[-1].as_group)
            on_group(len(groups))
        self.is_doubtful = audit.is_doubtful(self.claims)
        claims = audit.counted_groups(self._earlier, self.claims)
        if audit.is_impossible(claims):
            reason = (
                "its calls return long before their work is done, or after it was done elsewhere: "
                f"it claims {audit.claimed_us(claims):.4g} µs a call, from fresh inputs to "
                f"outputs it takes {audit.proven_us(claims):.4g} µs"
            )
            return CandidateFault(outcome=Outcome.REJECTED, stage="time", reason=reason)
        timed = audit.audited_timing(claims)
        if timed.median_us < self._floor_us:
            reason = f"{timed.median_us:.4g} µs a call is less than moving its outputs can take"
            return CandidateFault(outcome=Outcome.REJECTED, stage="time", reason=reason)
        return timed

    def _group(self) -> GroupClaim:
        """Time one group A B B A."""
        self._sides.cpu_wait_share()
        blocks = (
            self._repeated_blocks()
            if self._block_size.needs_repeated_inputs
            else self._fresh_blocks()
        )
        self._sides.require_frozen(everywhere=True)
        self.reading = self._sensors.read()
        throttled = self.reading is not None and self.reading.throttled
        return GroupClaim(
            reference=(blocks["reference"][0], blocks["reference"][1]),
            candidate=(blocks["candidate"][0], blocks["candidate"][1]),
            cpu_wait_share=1.0 if throttled else self._sides.cpu_wait_share(),
            on_gpu=not self._on_host,
        )

    def _fresh_blocks(self) -> dict[Side, list[TimedBlock]]:
        """Return blocks on fresh inputs, each half of the group on its own."""
        blocks: dict[Side, list[TimedBlock]] = {"reference": [], "candidate": []}
        for half in self._order():
            with self._input_batch() as batch:
                for side in half:
                    fresh = self._timed_batch(side, batch)
                    blocks[side].append(TimedBlock(us=fresh.us, fresh=fresh))
                self._spot_checks.verify(batch)
        return blocks

    def _repeated_blocks(self) -> dict[Side, list[TimedBlock]]:
        """Return long blocks on inputs that both were fed, and proved, right before.

        All four come after both were fed: who is fed first finds a card that has been idle.
        """
        (one, other), _half = self._order()
        known: dict[Side, list[float]] = {one: [], other: []}
        with self._input_batch() as batch:
            fresh = {side: self._timed_batch(side, batch) for side in (one, other)}
            if not self._on_host:  # a card that was fed comes back to its speed only after a while
                self._repeat(one, GPU_WARM_UP_BLOCKS if self._block_size.is_large else 1)
            for side, times in ((one, 1), (other, 2), (one, 1)):
                known[side] += self._repeat(side, times)
            self._spot_checks.verify(batch)
        return {
            side: [TimedBlock(us=first, fresh=fresh[side]), TimedBlock(us=second)]
            for side, (first, second) in known.items()
        }

    def _order(self) -> tuple[tuple[Side, Side], tuple[Side, Side]]:
        """Return who comes when in the next group: A B B A, on the host in turn with B A A B.

        There it is worth some per cent who finds the caches as the referee left them; on a card it
        is worth so little that the two orders would only take more groups to agree.
        """
        self._reversed = self._on_host and not self._reversed
        first, second = timing_statistics.HALVES
        return (second, first) if self._reversed else (first, second)

    def alone_us(self, beside_us: float) -> float:
        """Return what the reference takes once the candidate is gone: the slowest of some windows.

        Where it was slower beside the candidate there are many windows: calls that are little more
        than launches take 40 µs in one window and 60 in the next.
        """
        taken: list[float] = []
        began = time.monotonic()
        try:
            while len(taken) < 2 or (
                len(taken) < (ALONE_BLOCKS if max(taken) >= beside_us else MAX_ALONE_BLOCKS)
                and time.monotonic() - began < ALONE_S
            ):
                with self._input_batch() as batch:
                    fresh_us = self._timed_batch("reference", batch).us
                    again = self._block_size.needs_repeated_inputs
                    taken += self._repeat("reference", 1) if again else [fresh_us]
        finally:
            self._transfer.close()
            self._sides.thaw_both()
        return max(taken)

    @contextmanager
    def _input_batch(self) -> Iterator[InputBatch]:
        """Give fresh inputs for one block's calls; nobody keeps them afterwards."""
        began = time.monotonic()
        batch = self._transfer.draw_batch(self._block_size.calls)
        self._draw_s = (time.monotonic() - began) / self._block_size.calls
        try:
            yield batch
        finally:
            batch.close()
            if self.fixture.is_alive:
                self.fixture.referee.forget(batch.first, self._block_size.calls)

    def _timed_batch(self, side: Side, batch: InputBatch) -> FreshBlock:
        """Time one block of calls on fresh inputs."""
        calls = len(batch.inputs)
        timed = self._transfer.timed_batch(side, batch)
        return FreshBlock(
            calls=calls,
            us=self._net_us(timed.block_s - self._fresh_overhead_s, calls),
            fed_us=timed.fed_s / calls * 1e6,
            collected_us=timed.collected_s / calls * 1e6,
        )

    def _repeat(self, side: Side, times: int) -> list[float]:
        """Return the microseconds a call of long blocks on inputs that were there before."""
        calls, wanted = self._block_size.calls, self._block_size.repeated_calls(side)
        taken = []
        with self._sides.running(side):
            time.sleep(SETTLE_S if self._on_host else 0.0)
            for _block in range(times):
                # Once round, off the clock: one block comes after itself, another after others.
                self._sides.ask(side, CallRepeatedly(calls=calls, slots=calls))
                seconds, _answer = self._sides.ask(side, CallRepeatedly(calls=wanted, slots=calls))
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
            self._block_size.plan(claim, self._draw_s)
            spent = time.monotonic() - began
            if spent >= self._time_s or (round_ + 1 >= WARM_CALLS and spent >= warm_s):
                return
