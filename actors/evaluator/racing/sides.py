"""The two sides of a race as the judge asks them: one moves, the other is held still.

The clock is read here, right before an order is sent and right after its answer came.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from actors.evaluator.isolation.child import Child, Gone
from actors.evaluator.racing import pressure
from actors.evaluator.racing.stillness import Stillness
from actors.evaluator.standard import Standard
from actors.evaluator.timing import Side
from actors.evaluator.verdicts import Fault, fault_of
from actors.evaluator.wire.orders import Order, Raised
from actors.evaluator.wire.runner_orders import Bench, FromRunner, Present
from protocol.values import Value, Word

PINGS = 15
EARLY = 0.75  # of what a block took the last time: it will not take less
SETTLE_S = 0.003  # OpenMP threads of a referee on the host spin for about this long


class Spent(Value, frozen=True, kw_only=True):
    """Seconds of one window on fresh inputs."""

    fed_s: float = 0.0  # until its calls were ordered, where it is fed by orders
    block_s: float  # the calls
    collected_s: float  # until its outputs were handed over, or it stood still with them


class Refused(Exception):
    """The candidate's fault, on its way out of the race."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.reason)
        self.fault = fault


class Sides:
    """Reference and candidate, one at a time."""

    def __init__(
        self,
        standard: Standard,
        candidate: Child[FromRunner],
        stillness: Stillness,
        *,
        call_s: float,
    ) -> None:
        """`call_s`: the longest that one order may take."""
        self._standard = standard
        self._candidate = candidate
        self._stillness = stillness
        self._call_s = call_s
        self._on_host = standard.on_host
        self._took_s: dict[tuple[Side, int], float] = {}  # the last block of so many calls
        self._benched_s = self._waited_s = 0.0  # timed, and waited for a processor therein

    @contextmanager
    def moving(self, side: Side) -> Iterator[None]:
        """Let one side go on, for the length of a block of code."""
        # Both sides alike: who has just been woken is a little slower.
        still = self._still(side)
        if side == "candidate":
            self.insist_still()
        with self._beside(side), self._ahead():
            still.favour_held()
            still.end()
            try:
                yield
            finally:
                still.begin()

    def reach(self, side: Side) -> int:
        """Return the process that is the side's runner, once nothing of the side moves."""
        still = self._still(side)
        if not still.settle_all():
            if side == "reference":
                raise self._standard.failed("it can't be held still")
            reason = "its processes can't be held still"
            raise Refused(Fault(word=Word.REJECTED, stage="time", reason=reason))
        return still.eldest()

    def window(self, side: Side, calls: int) -> tuple[Spent, FromRunner]:
        """Let a side call its module on what lies there, until it stands still with its outputs.

        Returns where they lie, as it says.  Its calls are ordered before it may go on: while the
        runner waited for that, another of its threads could work for nothing.
        """
        still = self._still(side)
        if side == "candidate":
            self.insist_still()
        with self._beside(side), self._ahead():
            child = self._child(side)
            gone = child.tell(Bench(calls=calls, slots=calls), self._call_s)
            if gone is not None:
                self._answer(side, gone)
            still.favour_held()
            waited, began = pressure.waited_s(), time.perf_counter()
            still.end()
            try:
                self._answer(side, child.hear(self._call_s))
                between = time.perf_counter()
                # Only now: busy with this one, a runner would keep us from seeing that it is done.
                _seconds, answer = self.ask(side, Present())
            finally:
                still.stop()
            still.settle()
            ended = time.perf_counter()
            still.note()
        self._waited_s += pressure.waited_s() - waited
        self._benched_s += ended - began
        return Spent(block_s=between - began, collected_s=ended - between), answer

    def _beside(self, side: Side) -> AbstractContextManager[None]:
        return self._stillness.beside() if side == "reference" else nullcontext()

    def _ahead(self) -> AbstractContextManager[None]:
        # Not where we stay awake for answers: on a machine of one core nobody else would run.
        return pressure.ahead() if self._on_host else nullcontext()

    def _still(self, side: Side) -> Stillness:
        return self._stillness if side == "candidate" else self._standard.stillness

    def insist_still(self, *, everywhere: bool = False) -> None:
        """Refuse a candidate of whom something runs while it is held still.

        `everywhere`: among processes, too, that were there before it, or seem to be.
        """
        self._stillness.look(everywhere=everywhere)
        if self._stillness.restless:
            reason = (
                f"its processes ran for {self._stillness.ran_s:.2g} s while they were held still, "
                "in the reference's time"
            )
            raise Refused(Fault(word=Word.REJECTED, stage="time", reason=reason))

    def wake(self, side: Side) -> None:
        """Wait until it answers at all: being woken takes a few hundred microseconds.

        Never between fresh inputs and their outputs, where every moment is on the clock.
        """
        self.ask(side, Bench(calls=0, slots=1))

    def ask(
        self, side: Side, order: Order, carried: list[int] | None = None
    ) -> tuple[float, FromRunner]:
        """Return the seconds from the order to the answer, and the answer."""
        child = self._child(side)
        waited, began = pressure.waited_s(), time.perf_counter()
        keen_s = None if self._on_host else self._awaited_s(side, order)
        answer = child.ask(order, self._call_s, carried or [], keen_s=keen_s)
        seconds = time.perf_counter() - began
        if isinstance(order, Bench):
            self._waited_s += pressure.waited_s() - waited
            self._benched_s += seconds
            self._took_s[side, order.calls] = seconds
        return seconds, self._answer(side, answer)

    def _child(self, side: Side) -> Child[FromRunner]:
        return self._candidate if side == "candidate" else self._standard.runner

    def _answer(self, side: Side, heard: tuple[FromRunner, list[int]] | Gone) -> FromRunner:
        if isinstance(heard, Gone) or isinstance(heard[0], Raised):
            if side == "reference":
                raise self._standard.failed(heard)
            raise Refused(fault_of(heard, "time", self._candidate.output.text()))
        return heard[0]

    def window_overhead_s(self) -> float:
        """Return what a window of no calls takes at least until it is answered.

        Of that going on is most; and the least of it, for the same reasons.
        """
        return min(self.window("reference", 0)[0].block_s for _ in range(PINGS))

    def _awaited_s(self, side: Side, order: Order) -> float:
        """Return how long an answer will not come for sure; whole milliseconds."""
        if not isinstance(order, Bench):
            return 0.0
        took_s = self._took_s.get((side, order.calls), 0.0)
        return int(EARLY * took_s * 1000) / 1000

    def overhead_s(self) -> float:
        """Return what an empty block takes at least, by the reference: it has no reason to lie.

        The least: on a busy machine most of them take longer than many a real block, and what is
        taken off a block must never be more than was in it.
        """
        with self.moving("reference"):
            return min(self.ask("reference", Bench(calls=0, slots=1))[0] for _ in range(PINGS))

    def waiting(self) -> float:
        """Return the share of timed windows that was waited for a processor, since last asked."""
        share = self._waited_s / max(self._benched_s, 1e-6)
        self._benched_s = self._waited_s = 0.0
        return share

    def rest(self) -> None:
        """Let both go: whoever asks them next would wait in vain."""
        self._stillness.end()
        self._standard.stillness.end()
