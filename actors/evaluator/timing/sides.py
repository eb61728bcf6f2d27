"""The two sides of a benchmark, as the judge orders them: one runs, the other is frozen.

The judge's clock is read here, right before an order is sent and right after its answer came.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NamedTuple

from actors.evaluator.ipc.orders import CandidateRaised, Order
from actors.evaluator.ipc.runner_orders import (
    AwaitCard,
    CallRepeatedly,
    CallsReturned,
    FromRunner,
)
from actors.evaluator.reference.fixture import ReferenceFixture
from actors.evaluator.sandbox import clock_priority
from actors.evaluator.sandbox.child_client import ChildClient, ChildFailure
from actors.evaluator.sandbox.child_failures import Accusation, CandidateFault, fault_from_child
from actors.evaluator.sandbox.freezer import ProcessFreezer
from actors.evaluator.timing.awake_processors import AwakeProcessors, kept_awake
from actors.evaluator.timing.net_time import TimedWindow
from actors.evaluator.timing.timing_policy import POLICY
from actors.evaluator.timing.timing_statistics import Side
from protocol.values import Outcome, Value


class CandidateProcess(Value, frozen=True, kw_only=True):
    """A candidate's runner, and the freezer of all its processes."""

    runner: ChildClient[FromRunner]
    freezer: ProcessFreezer


class ClockReadings(NamedTuple):
    """The clock in a timed window: at its begin, at the answer, and at its end."""

    began: float
    block_ended: float
    ended: float
    worked_s: float  # of this thread meanwhile


class CandidateFaultError(Exception):
    """The candidate's fault, on its way out of the benchmark."""

    def __init__(self, fault: CandidateFault) -> None:
        super().__init__(fault.reason)
        self.fault = fault


def rejection(accusation: Accusation, reason: str) -> CandidateFault:
    """Return the fault of a candidate whose time or behaviour can't be honest."""
    return CandidateFault(
        outcome=Outcome.REJECTED, stage="time", reason=reason, accusation=accusation
    )


class Sides:
    """Reference and candidate, one at a time."""

    def __init__(
        self,
        fixture: ReferenceFixture,
        candidate: CandidateProcess,
        tolerated: frozenset[Accusation] = frozenset(),
    ) -> None:
        """`tolerated`: what the candidate is not rejected for."""
        self._fixture = fixture
        self._candidate = candidate
        self._tolerated = tolerated
        self._order_limit_s = fixture.limits.check_s  # the longest that one order may take
        self._is_warm = False  # both sides have prepared what they need
        self._on_host = fixture.on_host
        # On a card one processor launches the calls of both sides.
        self.processor = None if self._on_host else clock_priority.quickest_processor()
        self._last_block_s: dict[tuple[Side, int, bool, type], float] = {}
        # What the candidate says that a call of each block took.  No verdict reads it: benchmarks
        # of honest kernels compare the judge with it.
        self.told_call_s: list[float] = []
        self._awake = AwakeProcessors()

    def limit_orders(self) -> None:
        """Give a block no more than a call may take: a block is some milliseconds, or one call."""
        self._is_warm, self._order_limit_s = True, self._fixture.plain_call_s
        self._candidate.runner.stall_detector = None  # that limit is its own

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Prepare the machine for timed windows; at the end both sides run.

        Nothing else is launched on the sides' processor, and a host's processors stay awake.
        """
        awake = kept_awake() if self._on_host else nullcontext(self._awake)
        try:
            with clock_priority.staying_off({self.processor}), awake as self._awake:
                yield
        finally:
            self._awake = AwakeProcessors()
            self._thaw_both()

    @contextmanager
    def running(self, side: Side) -> Iterator[None]:
        """Let one side run, for the length of a block of code."""
        # Both sides are treated alike: a process that was just woken is a little slower.
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

    def left_after_wait(self, seconds: float) -> float:
        """Return what seeing an idle card takes the reference's process, in seconds.

        Its card has worked for `seconds` before, on the stream for which it waited.
        """
        with self.running("reference"):
            _seconds, answer = self.ask("reference", AwaitCard(seconds=seconds))
        return answer.left_s if isinstance(answer, CallsReturned) else 0.0

    def frozen_runner_pid(self, side: Side) -> int:
        """Return the pid of the side's runner, once no process of the side moves."""
        freezer = self._freezer_of(side)
        if not freezer.wait_all_stopped():
            if side == "reference":
                raise self._fixture.failure("its processes can't be frozen")
            reason = "its processes can't be frozen"
            raise CandidateFaultError(rejection(Accusation.NOT_FREEZABLE, reason))
        return freezer.oldest()

    def frozen_pids(self, side: Side) -> frozenset[int]:
        """Return the pids of a frozen side."""
        return self._freezer_of(side).frozen_pids()

    @contextmanager
    def held(self, side: Side) -> Iterator[frozenset[int]]:
        """Stop a side in the middle of its block; give the pids of its processes."""
        freezer = self._freezer_of(side)
        freezer.send_stop()
        freezer.wait_stopped()
        try:
            yield freezer.frozen_pids()
        finally:
            freezer.thaw()

    def timed_window(
        self,
        side: Side,
        block: CallRepeatedly,
        hand_over: tuple[Order, list[int]],
        before: Order | None = None,
        meanwhile: Callable[[float], None] = lambda _began: None,
    ) -> tuple[TimedWindow, FromRunner]:
        """Let a side do a block on the inputs in its memory, until it is frozen again.

        `meanwhile` is called while the block goes on, with the clock's reading at its begin; the
        window is not for its time then.  The second value is the answer to the order `hand_over`,
        in the side's own words.  The block (or the order `before` it) is ordered while the side is
        still frozen.  If the runner waited for the order instead, another thread of it could work
        in that time without being timed.
        """
        freezer = self._freezer_of(side)
        if side == "candidate":
            self.require_frozen()
        with self._accounting(side), self._priority():
            self._send(side, before or block)
            freezer.boost_priority()
            waited_s = self._waited_s(freezer)
            read, done, answer = self._clocked(side, block, hand_over, before, meanwhile)
            # Not for this thread, which comes before a thread of the side on one processor.
            waited_s = self._waited_s(freezer) - waited_s - read.worked_s
            freezer.snapshot_cpu()
        self._last_block_s[side, block.calls, block.is_empty, type(block)] = (
            read.block_ended - read.began
        )
        told = done if isinstance(done, CallsReturned) else CallsReturned()
        if side == "candidate":
            self.told_call_s.append(told.call_s)
        # A candidate is not believed what its calls took.
        return TimedWindow(
            block_s=read.block_ended - read.began,
            hand_over_s=read.ended - read.block_ended,
            waited_s=max(0.0, waited_s),
            call_s=told.call_s if side == "reference" else 0.0,
            left_s=told.left_s,
        ), answer

    def _clocked(
        self,
        side: Side,
        block: CallRepeatedly,
        hand_over: tuple[Order, list[int]],
        before: Order | None,
        meanwhile: Callable[[float], None],
    ) -> tuple[ClockReadings, FromRunner, FromRunner]:
        """Thaw a side until it is frozen again; return the clock's readings and both answers."""
        freezer = self._freezer_of(side)
        with self._woken(freezer):
            worked_s, began = time.thread_time(), time.perf_counter()
            freezer.thaw()
        try:
            meanwhile(began)
            done, block_ended, answer = self._answers(side, block, hand_over, before)
        finally:
            # On a card the search for processes that started meanwhile can wait: they need longer
            # than that to use the card at all.
            freezer.send_stop() if self._on_host else freezer.stop_known()
        ended, worked_until_s = self._await_rest(freezer)
        read = ClockReadings(
            began=began,
            block_ended=block_ended,
            ended=ended,
            worked_s=worked_until_s - worked_s,
        )
        return read, done, answer

    def _answers(
        self,
        side: Side,
        block: CallRepeatedly,
        hand_over: tuple[Order, list[int]],
        before: Order | None,
    ) -> tuple[FromRunner, float, FromRunner]:
        """Return a block's answer, the clock's reading at it, and the answer to `hand_over`."""
        if before is not None:
            self._receive(side)
            self._send(side, block)
        done = self._receive(side, block)
        block_ended = time.perf_counter()
        # Sent only now: a runner that is busy with this order could not show when the calls ended.
        _seconds, answer = self.ask(side, *hand_over)
        return done, block_ended, answer

    def _await_rest(self, freezer: ProcessFreezer) -> tuple[float, float]:
        """Wait until a side has stopped, and the card is idle; return the reading of both clocks.

        The second one is that of this thread's work.
        """
        if self._on_host:
            freezer.wait_stopped()
        else:  # work that it left on the card goes on while it is frozen
            self._fixture.referee.await_idle_card()
        readings = time.perf_counter(), time.thread_time()
        if not self._on_host:
            freezer.send_stop()
            freezer.wait_stopped()
        return readings

    def _waited_s(self, freezer: ProcessFreezer) -> float:
        return freezer.waited_s(main_thread_alone=not self._on_host)

    @contextmanager
    def _woken(self, freezer: ProcessFreezer) -> Iterator[None]:
        """Say where the threads of a frozen side go on; then the processors are theirs alone."""
        if self._on_host:
            with clock_priority.spread_at_wake(freezer.busiest_threads()):
                yield
            self._awake.rest()
        else:
            with clock_priority.woken_on(freezer.oldest(), self.processor):
                yield

    def _send(self, side: Side, order: Order) -> None:
        failure = self._runner_of(side).send_order(order, self._order_limit_s)
        if failure is not None:
            self._require_answer(side, failure)

    def _receive(self, side: Side, block: CallRepeatedly | None = None) -> FromRunner:
        """Wait for an answer; on a GPU, where a block ends is not slept over."""
        spin_after_s = None
        if not self._on_host:
            last_s = 0.0
            if block is not None:
                key = (side, block.calls, block.is_empty, type(block))
                last_s = self._last_block_s.get(key, 0.0)
            spin_after_s = int(POLICY.spin_after_share * last_s * 1000) / 1000
        answer = self._runner_of(side).receive_answer(
            self._order_limit_s, spin_after_s=spin_after_s
        )
        return self._require_answer(side, answer)

    def _accounting(self, side: Side) -> AbstractContextManager[None]:
        is_reference = side == "reference"
        return self._candidate.freezer.while_other_side_runs() if is_reference else nullcontext()

    @contextmanager
    def _priority(self) -> Iterator[None]:
        # Not on a GPU, where the judge spins for answers: on one core nothing else would run.
        with clock_priority.realtime_priority() if self._on_host else nullcontext():
            yield
        self._awake.go_on()

    def require_frozen(self, *, everywhere: bool = False) -> None:
        """Reject a candidate if one of its processes runs while it is frozen.

        `everywhere`: also look at processes that were there before the candidate, or seem to be.
        """
        freezer = self._candidate.freezer
        freezer.account_cpu(everywhere=everywhere)
        if freezer.ran_while_frozen:
            self.accuse(
                Accusation.RAN_WHILE_FROZEN,
                f"its processes ran for {freezer.ran_s:.2g} s while they were frozen, "
                "in the reference's time",
            )

    def accuse(self, accusation: Accusation, reason: str) -> None:
        """Raise the candidate's fault, unless this accusation is tolerated."""
        if accusation not in self._tolerated:
            raise CandidateFaultError(rejection(accusation, reason))

    def ask(
        self, side: Side, order: Order, carried: list[int] | None = None
    ) -> tuple[float, FromRunner]:
        """Return the seconds from the order to the answer, and the answer."""
        began = time.perf_counter()
        answer = self._runner_of(side).ask(
            order,
            self._order_limit_s,
            carried or [],
            spin_after_s=None if self._on_host else 0.0,
        )
        return time.perf_counter() - began, self._require_answer(side, answer)

    def _runner_of(self, side: Side) -> ChildClient[FromRunner]:
        return self._candidate.runner if side == "candidate" else self._fixture.runner

    def _freezer_of(self, side: Side) -> ProcessFreezer:
        return self._candidate.freezer if side == "candidate" else self._fixture.freezer

    def _require_answer(
        self, side: Side, answer: tuple[FromRunner, list[int]] | ChildFailure
    ) -> FromRunner:
        """Return a runner's answer; raise if it gave none or its module raised."""
        if isinstance(answer, ChildFailure) or isinstance(answer[0], CandidateRaised):
            if side == "reference":
                raise self._fixture.failure(answer)
            raise CandidateFaultError(self._fault_of(answer))
        return answer[0]

    def _fault_of(self, answer: tuple[FromRunner, list[int]] | ChildFailure) -> CandidateFault:
        if isinstance(answer, ChildFailure) and answer.how == "timed_out" and self._is_warm:
            reason = f"calls after the warm-up had not ended after {answer.seconds:g} s"
            return CandidateFault(outcome=Outcome.TIMED_OUT, stage="time", reason=reason)
        return fault_from_child(answer, "time", self._candidate.runner.output.text())

    def _thaw_both(self) -> None:
        """Let both sides run: a frozen side would not answer the next order."""
        self._candidate.freezer.thaw()
        self._fixture.freezer.thaw()
