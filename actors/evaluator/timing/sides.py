"""The two sides of a race as the judge asks them: one moves, the other is held still.

The clock is read here, right before an order is sent and right after its answer came.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from actors.evaluator.ipc.orders import CandidateRaised, Order
from actors.evaluator.ipc.runner_orders import CallRepeatedly, FromRunner, LocateOutputs
from actors.evaluator.reference.fixture import ReferenceFixture
from actors.evaluator.sandbox.child_client import ChildClient, ChildFailure
from actors.evaluator.sandbox.child_failures import CandidateFault, fault_from_child
from actors.evaluator.sandbox.freezer import ProcessFreezer
from actors.evaluator.timing import cpu_contention
from actors.evaluator.timing.timing_statistics import Side
from protocol.values import Outcome, Value

OVERHEAD_SAMPLES = 15
SPIN_AFTER_SHARE = 0.75  # of what a block took the last time: it will not take less
SETTLE_S = 0.003  # OpenMP threads of a referee on the host spin for about this long


class TimedWindow(Value, frozen=True, kw_only=True):
    """Seconds of one window on fresh inputs."""

    fed_s: float = 0.0  # until its calls were ordered, where it is fed by orders
    block_s: float  # the calls
    collected_s: float  # until its outputs were handed over, or it stood still with them


class CandidateFaultError(Exception):
    """The candidate's fault, on its way out of the race."""

    def __init__(self, fault: CandidateFault) -> None:
        super().__init__(fault.reason)
        self.fault = fault


class Sides:
    """Reference and candidate, one at a time."""

    def __init__(
        self,
        fixture: ReferenceFixture,
        candidate: ChildClient[FromRunner],
        freezer: ProcessFreezer,
        *,
        call_s: float,
    ) -> None:
        """`call_s`: the longest that one order may take."""
        self._fixture = fixture
        self._candidate = candidate
        self._freezer = freezer
        self._call_s = call_s
        self._on_host = fixture.on_host
        self._took_s: dict[tuple[Side, int], float] = {}  # the last block of so many calls
        self._timed_s = self._waited_s = 0.0  # timed, and waited for a processor therein

    @contextmanager
    def running(self, side: Side) -> Iterator[None]:
        """Let one side go on, for the length of a block of code."""
        # Both sides alike: who has just been woken is a little slower.
        freezer = self._freezer_of(side)
        if side == "candidate":
            self.require_frozen()
        with self._accounting(side), self._priority():
            freezer.boost_priority()
            freezer.thaw()
            try:
                yield
            finally:
                freezer.freeze()

    def frozen_runner_pid(self, side: Side) -> int:
        """Return the process that is the side's runner, once nothing of the side moves."""
        freezer = self._freezer_of(side)
        if not freezer.wait_all_stopped():
            if side == "reference":
                raise self._fixture.failure("it can't be held still")
            reason = "its processes can't be held still"
            raise CandidateFaultError(
                CandidateFault(outcome=Outcome.REJECTED, stage="time", reason=reason)
            )
        return freezer.oldest()

    def timed_window(self, side: Side, calls: int) -> tuple[TimedWindow, FromRunner]:
        """Let a side call its module on what lies there, until it stands still with its outputs.

        Returns where they lie, as it says.  Its calls are ordered before it may go on: while the
        runner waited for that, another of its threads could work for nothing.
        """
        freezer = self._freezer_of(side)
        if side == "candidate":
            self.require_frozen()
        with self._accounting(side), self._priority():
            child = self._child(side)
            failure = child.send_order(CallRepeatedly(calls=calls, slots=calls), self._call_s)
            if failure is not None:
                self._answer(side, failure)
            freezer.boost_priority()
            waited, began = cpu_contention.waited_s(), time.perf_counter()
            freezer.thaw()
            try:
                self._answer(side, child.receive_answer(self._call_s))
                between = time.perf_counter()
                # Only now: busy with this one, a runner would keep us from seeing that it is done.
                _seconds, answer = self.ask(side, LocateOutputs())
            finally:
                freezer.send_stop()
            freezer.wait_stopped()
            ended = time.perf_counter()
            freezer.snapshot_cpu()
        self._waited_s += cpu_contention.waited_s() - waited
        self._timed_s += ended - began
        return TimedWindow(block_s=between - began, collected_s=ended - between), answer

    def _accounting(self, side: Side) -> AbstractContextManager[None]:
        return self._freezer.while_other_side_runs() if side == "reference" else nullcontext()

    def _priority(self) -> AbstractContextManager[None]:
        # Not where we stay awake for answers: on a machine of one core nobody else would run.
        return cpu_contention.realtime_priority() if self._on_host else nullcontext()

    def _freezer_of(self, side: Side) -> ProcessFreezer:
        return self._freezer if side == "candidate" else self._fixture.freezer

    def require_frozen(self, *, everywhere: bool = False) -> None:
        """Refuse a candidate of whom something runs while it is held still.

        `everywhere`: among processes, too, that were there before it, or seem to be.
        """
        self._freezer.account_cpu(everywhere=everywhere)
        if self._freezer.ran_while_frozen:
            reason = (
                f"its processes ran for {self._freezer.ran_s:.2g} s while they were held still, "
                "in the reference's time"
            )
            raise CandidateFaultError(
                CandidateFault(outcome=Outcome.REJECTED, stage="time", reason=reason)
            )

    def wake(self, side: Side) -> None:
        """Wait until it answers at all: being woken takes a few hundred microseconds.

        Never between fresh inputs and their outputs, where every moment is on the clock.
        """
        self.ask(side, CallRepeatedly(calls=0, slots=1))

    def ask(
        self, side: Side, order: Order, carried: list[int] | None = None
    ) -> tuple[float, FromRunner]:
        """Return the seconds from the order to the answer, and the answer."""
        child = self._child(side)
        waited, began = cpu_contention.waited_s(), time.perf_counter()
        keen_s = None if self._on_host else self._spin_after_s(side, order)
        answer = child.ask(order, self._call_s, carried or [], spin_after_s=keen_s)
        seconds = time.perf_counter() - began
        if isinstance(order, CallRepeatedly):
            self._waited_s += cpu_contention.waited_s() - waited
            self._timed_s += seconds
            self._took_s[side, order.calls] = seconds
        return seconds, self._answer(side, answer)

    def _child(self, side: Side) -> ChildClient[FromRunner]:
        return self._candidate if side == "candidate" else self._fixture.runner

    def _answer(self, side: Side, heard: tuple[FromRunner, list[int]] | ChildFailure) -> FromRunner:
        if isinstance(heard, ChildFailure) or isinstance(heard[0], CandidateRaised):
            if side == "reference":
                raise self._fixture.failure(heard)
            raise CandidateFaultError(
                fault_from_child(heard, "time", self._candidate.output.text())
            )
        return heard[0]

    def timed_window_overhead_s(self) -> float:
        """Return what a window of no calls takes at least until it is answered.

        Of that going on is most; and the least of it, for the same reasons.
        """
        return min(self.timed_window("reference", 0)[0].block_s for _ in range(OVERHEAD_SAMPLES))

    def _spin_after_s(self, side: Side, order: Order) -> float:
        """Return how long an answer will not come for sure; whole milliseconds."""
        if not isinstance(order, CallRepeatedly):
            return 0.0
        took_s = self._took_s.get((side, order.calls), 0.0)
        return int(SPIN_AFTER_SHARE * took_s * 1000) / 1000

    def overhead_s(self) -> float:
        """Return what an empty block takes at least, by the reference: it has no reason to lie.

        The least: on a busy machine most of them take longer than many a real block, and what is
        taken off a block must never be more than was in it.
        """
        with self.running("reference"):
            return min(
                self.ask("reference", CallRepeatedly(calls=0, slots=1))[0]
                for _ in range(OVERHEAD_SAMPLES)
            )

    def cpu_wait_share(self) -> float:
        """Return the share of timed windows that was waited for a processor, since last asked."""
        share = self._waited_s / max(self._timed_s, 1e-6)
        self._timed_s = self._waited_s = 0.0
        return share

    def thaw_both(self) -> None:
        """Let both go: whoever asks them next would wait in vain."""
        self._freezer.thaw()
        self._fixture.freezer.thaw()
