"""Reference and candidate timed in turn by the judge's own clock, on calls that it verifies.

Both sides are runners, forked from the same zygote and given the same orders.  No figure comes from
a child: the clock is read in the judge (`sides`).  Each call of a fresh block has inputs that were
drawn for it alone, in storage that held other inputs before.  After the block the outputs of all
its calls must be handed over, on the clock, and some of them, drawn by lot only then, are compared.
So the time that a candidate claims (its block) can be compared with all that it needed, from the
first byte of inputs to the last byte of outputs (`audit`).  Between timed windows it is frozen.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from actors.evaluator.devices.sensors import GpuSensors, SensorReading
from actors.evaluator.ipc.layout_checks import total_bytes
from actors.evaluator.ipc.runner_orders import CallRepeatedly, ReleaseTensors
from actors.evaluator.reference.fixture import ReferenceFixture
from actors.evaluator.reference.referee_client import InputBatch
from actors.evaluator.sandbox.child_failures import Accusation, CandidateFault
from actors.evaluator.timing import audit, timing_statistics
from actors.evaluator.timing.audit import FreshBlock, GroupClaim, TimedBlock
from actors.evaluator.timing.block_size import BlockSize
from actors.evaluator.timing.host_transfer import HostTransfer
from actors.evaluator.timing.runner_transfer import RunnerTransfer
from actors.evaluator.timing.sides import CandidateFaultError, CandidateProcess, Sides
from actors.evaluator.timing.spot_checks import SpotChecks
from actors.evaluator.timing.timing_policy import POLICY
from actors.evaluator.timing.timing_statistics import Side, Timing
from actors.work_context import EvaluationContext

MAX_WARM_UP_GROUPS = 1000  # the warm-up ends by its time; this is a limit for a clock that does not


class PairedBenchmark:
    """One candidate against the reference."""

    def __init__(
        self,
        fixture: ReferenceFixture,
        candidate: CandidateProcess,
        sensors: GpuSensors,
        *,
        floor_us: float,
        earlier_claims: Sequence[GroupClaim] = (),
        best_speedup: float = 0.0,
        time_s: float | None = None,
        tolerated: Accusation | None = None,
    ) -> None:
        """`earlier_claims`: of the same candidate in another process, where they were doubted.

        `best_speedup`: of the task so far; a candidate that is clearly slower is timed roughly.
        `time_s`: the most seconds; None: the limit's.  `tolerated`: what the candidate is not
        rejected for.
        """
        self._best_speedup = best_speedup
        self.fixture = fixture
        self.reading: SensorReading | None = None  # of the GPU's sensors, after the last group
        self.claims: list[GroupClaim] = []
        self._earlier_claims = earlier_claims
        self._is_time_up = False  # whether the time ended the timing, and not a narrow interval
        self.is_doubtful = False  # whether more may have been needed than was claimed
        self._sides = Sides(fixture, candidate, tolerated)
        self._sensors = sensors
        self._floor_us = floor_us  # what no machine like this can beat
        self._time_s = fixture.limits.time_s if time_s is None else time_s
        facts = fixture.facts
        self._bytes_per_call = max(1, total_bytes(facts.inputs) + total_bytes(facts.outputs))
        self._spot_checks = SpotChecks(fixture, self._bytes_per_call)
        self._transfer: RunnerTransfer | HostTransfer = RunnerTransfer(
            fixture, self._sides, self._spot_checks, self._bytes_per_call
        )
        self._reversed = False
        self._on_host = fixture.on_host
        self._block_size = BlockSize(
            bytes_per_call=self._bytes_per_call,
            batch_bytes=facts.input_bytes if fixture.uses_device_memory else POLICY.batch_bytes,
            block_s=POLICY.block_s if self._on_host else POLICY.gpu_block_s,
            time_s=self._time_s,
        )
        self._overhead_s = self._fresh_overhead_s = 0.0  # of a block, of a fresh block
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
        except CandidateFaultError as error:
            return error.fault
        finally:
            self._transfer.close()
            self._sides.thaw_both()

    def _release_both(self) -> None:
        """Have both sides lay out their memory anew: its place may be worth some per cent."""
        for side in timing_statistics.HALVES[0]:
            with self._sides.running(side):
                self._sides.ask(side, ReleaseTensors())

    def _choose_transfer(self) -> None:
        """Have the judge move inputs and outputs, where the machine permits it."""
        host_transfer = HostTransfer(
            self.fixture, self._sides, self._spot_checks, self._bytes_per_call
        )
        if self._on_host and host_transfer.is_possible():
            self._transfer = host_transfer

    def _groups(self, on_group: Callable[[int], None]) -> Timing:
        """Time groups until enough is known; return the audited figures."""
        began = time.monotonic()
        groups: list[timing_statistics.TimedGroup] = []
        while not timing_statistics.is_enough(
            groups, time.monotonic() - began, self._time_s, self._best_speedup
        ):
            self.claims.append(self._group())
            groups.append(self.claims[-1].as_group)
            on_group(len(groups))
        self._is_time_up = time.monotonic() - began >= self._time_s
        self.is_doubtful = audit.is_doubtful(self.claims)
        return self._audited(audit.counted_groups(self._earlier_claims, self.claims))

    def log_end(self, context: EvaluationContext, seconds: float) -> None:
        """Log how many groups were timed, and why no more."""
        if self._is_time_up:
            why = f"the time was up ({self._time_s:g} s)"
        elif timing_statistics.is_enough([claim.as_group for claim in self.claims], 0.0, math.inf):
            why = "narrow interval"
        else:
            why = "clearly behind the best"
        context.log_step("timed", groups=len(self.claims), ended_by=why, seconds=round(seconds, 3))

    def _audited(self, claims: Sequence[GroupClaim]) -> Timing:
        """Return the figures of these claims; raise if they can't be honest."""
        if audit.is_impossible(claims):
            self._sides.accuse(
                Accusation.UNCLAIMED_WORK,
                "its calls return long before their work is done, or after it was done elsewhere: "
                f"it claims {audit.fresh_claim_us(claims):.4g} µs a call, from fresh inputs to "
                f"outputs it takes {audit.needed_us(claims):.4g} µs",
            )
        timed = audit.audited_timing(claims)
        if timed.median_us < self._floor_us:
            self._sides.accuse(
                Accusation.BELOW_FLOOR,
                f"{timed.median_us:.4g} µs a call is less than moving its outputs can take",
            )
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
        """Return fresh blocks; each half of the group has a batch of inputs of its own."""
        blocks: dict[Side, list[TimedBlock]] = {"reference": [], "candidate": []}
        for half in self._order():
            with self._input_batch() as batch:
                for side in half:
                    fresh = self._timed_batch(side, batch)
                    blocks[side].append(TimedBlock(us=fresh.us, fresh=fresh))
                self._spot_checks.verify(batch)
        return blocks

    def _repeated_blocks(self) -> dict[Side, list[TimedBlock]]:
        """Return long blocks on inputs that both sides were given in fresh blocks right before.

        All four long blocks come after both fresh ones: the side that is given inputs first finds
        a GPU that has been idle.
        """
        (one, other), _half = self._order()
        repeated: dict[Side, list[float]] = {one: [], other: []}
        with self._input_batch() as batch:
            fresh = {side: self._timed_batch(side, batch) for side in (one, other)}
            if not self._on_host:  # after inputs were set, a GPU is slow for a while
                self._repeat(one, POLICY.gpu_warm_up_blocks if self._block_size.is_large else 1)
            for side, times in ((one, 1), (other, 2), (one, 1)):
                repeated[side] += self._repeat(side, times)
            self._spot_checks.verify(batch)
        return {
            side: [TimedBlock(us=first, fresh=fresh[side]), TimedBlock(us=second)]
            for side, (first, second) in repeated.items()
        }

    def _order(self) -> tuple[tuple[Side, Side], tuple[Side, Side]]:
        """Return the order of the next group: A B B A, on a host in turn with B A A B.

        On a host the first side finds the caches as the referee left them, which is worth some per
        cent.  On a GPU it is worth so little that two orders would only need more groups to agree.
        """
        self._reversed = self._on_host and not self._reversed
        first, second = timing_statistics.HALVES
        return (second, first) if self._reversed else (first, second)

    def alone_us(self, beside_us: float) -> float:
        """Return what the reference takes once the candidate is gone: the slowest of some blocks.

        `beside_us`: what it took beside the candidate.  If all blocks are faster than that, there
        are more of them: calls that are little more than launches take 40 µs in one block and 60 µs
        in the next.
        """
        blocks_us: list[float] = []
        began = time.monotonic()
        try:
            while len(blocks_us) < 2 or (
                len(blocks_us)
                < (POLICY.alone_blocks if max(blocks_us) >= beside_us else POLICY.max_alone_blocks)
                and time.monotonic() - began < POLICY.alone_s
            ):
                with self._input_batch() as batch:
                    fresh_us = self._timed_batch("reference", batch).us
                    is_repeated = self._block_size.needs_repeated_inputs
                    blocks_us += self._repeat("reference", 1) if is_repeated else [fresh_us]
        finally:
            self._transfer.close()
            self._sides.thaw_both()
        return max(blocks_us)

    @contextmanager
    def _input_batch(self) -> Iterator[InputBatch]:
        """Yield fresh inputs for one block's calls; the referee forgets them afterwards."""
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
        """Time one fresh block."""
        calls = len(batch.inputs)
        timed = self._transfer.timed_batch(side, batch)
        return FreshBlock(
            calls=calls,
            us=self._net_us(timed.block_s - self._fresh_overhead_s, calls),
            input_us=timed.input_s / calls * 1e6,
            output_us=timed.output_s / calls * 1e6,
        )

    def _repeat(self, side: Side, times: int) -> list[float]:
        """Return the microseconds a call of long blocks on inputs that the side already has."""
        calls, wanted = self._block_size.calls, self._block_size.repeated_calls(side)
        blocks_us = []
        with self._sides.running(side):
            time.sleep(POLICY.settle_s if self._on_host else 0.0)
            for _block in range(times):
                # A round that is not timed: otherwise one block would follow a block of its own
                # side, another one a block of the other side.
                self._sides.ask(side, CallRepeatedly(calls=calls, slots=calls))
                seconds, _answer = self._sides.ask(side, CallRepeatedly(calls=wanted, slots=calls))
                blocks_us.append(self._net_us(seconds - self._overhead_s, wanted))
        return blocks_us

    def _net_us(self, seconds: float, calls: int) -> float:
        return max(seconds, 1e-9) / calls * 1e6

    def _warm(self) -> None:
        """Run groups until both sides are warm and the number of calls in a block is known."""
        warm_up_s = min(POLICY.warm_up_s, self._time_s / 10)
        began = time.monotonic()
        for number in range(MAX_WARM_UP_GROUPS):
            claim = self._group()
            self._block_size.plan(claim, self._draw_s)
            spent = time.monotonic() - began
            if spent >= self._time_s or (
                number + 1 >= POLICY.warm_up_groups and spent >= warm_up_s
            ):
                return
