"""The two sides of a benchmark, as the judge orders them: one runs, the other is frozen.

The judge's clock is read here, right before an order is sent and right after its answer came.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from actors.evaluator.ipc.orders import CandidateRaised, Order
from actors.evaluator.ipc.runner_orders import CallRepeatedly, FromRunner, LocateOutputs
from actors.evaluator.reference.fixture import ReferenceFixture
from actors.evaluator.sandbox.child_client import ChildClient, ChildFailure
from actors.evaluator.sandbox.child_failures import Accusation, CandidateFault, fault_from_child
from actors.evaluator.sandbox.freezer import ProcessFreezer
from actors.evaluator.timing import cpu_contention
from actors.evaluator.timing.timing_policy import POLICY
from actors.evaluator.timing.timing_statistics import Side
from protocol.values import Outcome, Value


class CandidateProcess(Value, frozen=True, kw_only=True):
    """A candidate's runner, and the freezer of all its processes."""

    runner: ChildClient[FromRunner]
    freezer: ProcessFreezer


class TimedWindow(Value, frozen=True, kw_only=True):
    """Seconds of one timed window on fresh inputs."""

    input_s: float = 0.0  # setting the inputs, where the runner does it by orders
    block_s: float  # the calls
    output_s: float  # until the outputs were handed over, or the side was frozen with them


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
        tolerated: Accusation | None = None,
    ) -> None:
        """`tolerated`: what the candidate is not rejected for."""
        self._fixture = fixture
        self._candidate = candidate
        self._tolerated = tolerated
        self._order_limit_s = fixture.limits.check_s  # the longest that one order may take
        self._on_host = fixture.on_host
        self._last_block_s: dict[tuple[Side, int], float] = {}  # by side and number of calls
        self._timed_s = self._waited_s = 0.0  # timed, and waited for a processor in that time

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

    def frozen_runner_pid(self, side: Side) -> int:
        """Return the pid of the side's runner, once no process of the side moves."""
        freezer = self._freezer_of(side)
        if not freezer.wait_all_stopped():
            if side == "reference":
                raise self._fixture.failure("its processes can't be frozen")
            reason = "its processes can't be frozen"
            raise CandidateFaultError(rejection(Accusation.NOT_FREEZABLE, reason))
        return freezer.oldest()

    def timed_window(self, side: Side, calls: int) -> tuple[TimedWindow, FromRunner]:
        """Let a side call its module on the inputs in its memory, until it is frozen again.

        The second value says where the outputs are, in the side's own words.  The calls are ordered
        while the side is still frozen.  If the runner waited for the order instead, another thread
        of it could work in that time without being timed.
        """
        freezer = self._freezer_of(side)
        if side == "candidate":
            self.require_frozen()
        with self._accounting(side), self._priority():
            runner = self._runner_of(side)
            failure = runner.send_order(
                CallRepeatedly(calls=calls, slots=calls), self._order_limit_s
            )
            if failure is not None:
                self._require_answer(side, failure)
            freezer.boost_priority()
            waited_s, began = cpu_contention.waited_s(), time.perf_counter()
            freezer.thaw()
            try:
                self._require_answer(side, runner.receive_answer(self._order_limit_s))
                block_ended = time.perf_counter()
                # Sent only now: a runner that is busy with this order could not show when the
                # calls ended.
                _seconds, answer = self.ask(side, LocateOutputs())
            finally:
                freezer.send_stop()
            freezer.wait_stopped()
            ended = time.perf_counter()
            freezer.snapshot_cpu()
        self._waited_s += cpu_contention.waited_s() - waited_s
        self._timed_s += ended - began
        return TimedWindow(block_s=block_ended - began, output_s=ended - block_ended), answer

    def _accounting(self, side: Side) -> AbstractContextManager[None]:
        is_reference = side == "reference"
        return self._candidate.freezer.while_other_side_runs() if is_reference else nullcontext()

    def _priority(self) -> AbstractContextManager[None]:
        # Not on a GPU, where the judge spins for answers: on one core nothing else would run.
        return cpu_contention.realtime_priority() if self._on_host else nullcontext()

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
        if accusation is not self._tolerated:
            raise CandidateFaultError(rejection(accusation, reason))

    def wake(self, side: Side) -> None:
        """Wait until a side answers an empty order: to be woken takes a few hundred microseconds.

        This is never done between fresh inputs and their outputs, where all time counts.
        """
        self.ask(side, CallRepeatedly(calls=0, slots=1))

    def ask(
        self, side: Side, order: Order, carried: list[int] | None = None
    ) -> tuple[float, FromRunner]:
        """Return the seconds from the order to the answer, and the answer."""
        runner = self._runner_of(side)
        waited_s, began = cpu_contention.waited_s(), time.perf_counter()
        spin_after_s = None if self._on_host else self._spin_after_s(side, order)
        answer = runner.ask(order, self._order_limit_s, carried or [], spin_after_s=spin_after_s)
        seconds = time.perf_counter() - began
        if isinstance(order, CallRepeatedly):
            self._waited_s += cpu_contention.waited_s() - waited_s
            self._timed_s += seconds
            self._last_block_s[side, order.calls] = seconds
        return seconds, self._require_answer(side, answer)

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
            output = self._candidate.runner.output.text()
            raise CandidateFaultError(fault_from_child(answer, "time", output))
        return answer[0]

    def _spin_after_s(self, side: Side, order: Order) -> float:
        """Return how long no answer can come, in whole milliseconds."""
        if not isinstance(order, CallRepeatedly):
            return 0.0
        last_block_s = self._last_block_s.get((side, order.calls), 0.0)
        return int(POLICY.spin_after_share * last_block_s * 1000) / 1000

    def overhead_s(self) -> float:
        """Return what an empty block takes at least, by the reference, which has no reason to lie.

        The least is used.  On a busy machine most empty blocks take longer than many a real block,
        and what is taken off a block must never be more than was in it.
        """
        with self.running("reference"):
            return min(
                self.ask("reference", CallRepeatedly(calls=0, slots=1))[0]
                for _ in range(POLICY.overhead_samples)
            )

    def timed_window_overhead_s(self) -> float:
        """Return what a timed window without calls takes at least until it is answered.

        Most of that is waking up.  The least is used for the reasons of `overhead_s`.
        """
        return min(
            self.timed_window("reference", 0)[0].block_s for _ in range(POLICY.overhead_samples)
        )

    def cpu_wait_share(self) -> float:
        """Return the share of timed windows in which tasks waited for a processor; start anew."""
        share = self._waited_s / max(self._timed_s, 1e-6)
        self._timed_s = self._waited_s = 0.0
        return share

    def thaw_both(self) -> None:
        """Let both sides run: a frozen side would not answer the next order."""
        self._candidate.freezer.thaw()
        self._fixture.freezer.thaw()
