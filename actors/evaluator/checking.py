"""The check: a candidate's outputs on fresh inputs of several kinds, each time in other storage.

An output that was returned before must not change, and the inputs must be left as the reference
leaves them.
"""

from __future__ import annotations

import os
import time
from typing import NamedTuple

from actors.evaluator.ipc.layout_checks import tensor_leaves
from actors.evaluator.ipc.orders import CandidateRaised, Done, InputKind
from actors.evaluator.ipc.referee_orders import Compared
from actors.evaluator.ipc.runner_orders import AwaitCall, CallOnce, CallReturned, FromRunner
from actors.evaluator.reference.fixture import ReferenceFixture
from actors.evaluator.reference.referee_client import DrawnInputs
from actors.evaluator.sandbox.child_client import ChildClient, ChildFailure
from actors.evaluator.sandbox.child_failures import CandidateFault, fault_from_child, wrong_result
from protocol.facts import DrawError
from protocol.values import Outcome

KIND_NAMES: dict[InputKind, str] = {
    "plain": "as given",
    "blocks": "repeated rows",
    "uneven": "a few large slices",
    "large": "a few elements whose exponential overflows",
    "missing": "a few NaN",
}
MAX_NAMES = 5
SLOTS_OF_KEPT_INPUTS = 4  # a module that keeps an input finds it there in the next three calls
# Bytes of a call's inputs and outputs: of a smaller one the first output is held until the end.
HELD_BYTES = 1 << 28
MORE_CHECKS_S = 5.0  # after that, no further input kinds: a slow task is not checked on all


class HeldOutput(NamedTuple):
    """An output that the candidate has returned, and what it was computed of."""

    drawn: DrawnInputs
    called: CallReturned
    number: int  # of the round


class CorrectnessCheck:
    """One candidate's rounds of checks."""

    def __init__(
        self,
        fixture: ReferenceFixture,
        runner: ChildClient[FromRunner],
        *,
        missing_parameters: tuple[str, ...],
        only_one_draw: bool = False,
    ) -> None:
        """`missing_parameters`: what the candidate lacks, often the reason of wrong results.

        `only_one_draw`: for a rough trial, which decides nothing.
        """
        self._only_one_draw = only_one_draw
        self._fixture = fixture
        self._referee = fixture.referee
        self._runner = runner
        self._call_s = fixture.limits.check_s
        self._missing = missing_parameters
        self.rounds = 0  # that are over
        self._errors: dict[InputKind, float] = {}  # in units of the tolerance
        self.error_share: float | None = None  # of KernelBench's tolerance, at worst

    def run(self) -> CandidateFault | None:
        """Compare outputs on fresh inputs, each time in storage that held other inputs before."""
        previous: HeldOutput | None = None
        first: HeldOutput | None = None  # later calls may return its memory only much later
        drawn: list[DrawnInputs] = []  # that the referee still knows
        began, least = time.monotonic(), max(2, self._fixture.task.checks)
        plain: list[InputKind] = ["plain"]
        kinds = plain + self._fixture.input_kinds
        kinds = plain if self._only_one_draw else kinds + plain * (least - len(kinds))
        try:
            for number, kind in enumerate(kinds):
                if number >= least and time.monotonic() - began > MORE_CHECKS_S:
                    break
                drawing = self._referee.draw(kind)
                drawn.append(drawing)
                called = self._round(drawing, number, kind)
                if isinstance(called, CandidateFault):
                    return called
                fault = self._changed_output(previous)
                if fault is not None:
                    return fault
                if previous is not None and previous is not first:  # the next one takes as much
                    drawn.remove(previous.drawn)
                    self._referee.forget(previous.drawn.number)
                previous = HeldOutput(drawing, called, number)
                first = first or (previous if self._holds_first else None)
                self.rounds = number + 1
            return self._changed_output(first) or self._changed_state()
        finally:
            for drawing in drawn:
                if self._runner.failure is None or self._fixture.is_alive:
                    self._referee.forget(drawing.number)

    @property
    def _holds_first(self) -> bool:
        return self._fixture.task_bytes.a_call <= HELD_BYTES

    def _changed_state(self) -> CandidateFault | None:
        """Return a fault if calls did not change the module's state as those of the task did."""
        updated = self._fixture.facts.updated
        if not updated.items:
            return None
        found = self._referee.compare_state(self._runner, updated, self.rounds)
        if isinstance(found, CandidateFault) or not found.reason:
            return found if isinstance(found, CandidateFault) else None
        calls = f"after {self.rounds} calls"
        return wrong_result(f"{calls}: {found.reason}", "check", found.max_error)

    def _round(
        self, drawn: DrawnInputs, number: int, kind: InputKind
    ) -> CallReturned | CandidateFault:
        runner = self._runner
        # As a rule in the same memory: an answer that is cached for an address is wrong then.
        slot = number % SLOTS_OF_KEPT_INPUTS if self._fixture.facts.keeps_inputs else 0
        set_inputs, carried = drawn.set_inputs_order(slot)
        try:
            answer = runner.ask(set_inputs, self._call_s, carried)
        finally:
            os.close(drawn.buffer)  # the candidate has its copy
        if isinstance(answer, ChildFailure) or isinstance(answer[0], CandidateRaised):
            return fault_from_child(answer, "check", runner.output.text())
        guard = tuple(leaf.nbytes for leaf in tensor_leaves(self._fixture.facts.outputs))
        order = CallOnce(
            slot=slot,
            seed=drawn.seed,
            keep=number,
            keeps_first=self._holds_first,
            guard=guard,
            waits=False,
        )
        called = self._called(order)
        if isinstance(called, CandidateFault):
            return called
        if called.redzone_breach:
            return wrong_result(f"it {called.redzone_breach[:200]}", "check")
        found = self._referee.compare_output(
            runner, drawn.number, "check", called, number, share=number == 0
        )
        if not isinstance(found, CandidateFault) and not found.reason:
            self._note_error(found, kind)
            found = self._referee.compare_inputs(runner, slot, drawn)
        if isinstance(found, CandidateFault):
            return found
        if found.reason:
            reason = f"{found.reason}{self._unloaded_parameters()}"
            lines = (_round_line(number, kind), *found.difference) if found.difference else ()
            return wrong_result(reason, "check", found.max_error, lines)
        return called

    def _called(self, order: CallOnce) -> CallReturned | CandidateFault:
        """Have the candidate called, which may prepare things for long; its kernels may not."""
        runner = self._runner
        answer = runner.ask(order, self._call_s)
        if not isinstance(answer, ChildFailure) and isinstance(answer[0], Done):
            answer = runner.ask(AwaitCall(), self._fixture.plain_call_s)
            if isinstance(answer, ChildFailure) and answer.how == "timed_out":
                reason = f"its kernels had not ended {answer.seconds:g} s after forward returned"
                return CandidateFault(outcome=Outcome.TIMED_OUT, stage="check", reason=reason)
        if isinstance(answer, ChildFailure) or not isinstance(answer[0], CallReturned):
            return fault_from_child(answer, "check", runner.output.text())
        return answer[0]

    def _changed_output(self, held: HeldOutput | None) -> CandidateFault | None:
        """Return a fault if a later call changed an output that was returned before."""
        if held is None or all(self._fixture.facts.aliases):
            return None
        drawn, called, number = held
        found = self._referee.compare_output(
            self._runner, drawn.number, "check", called, number, only_own=True
        )
        if isinstance(found, CandidateFault) or not found.reason:
            return found if isinstance(found, CandidateFault) else None
        reason = f"a later call changed an output that was returned before: {found.reason}"
        return wrong_result(reason, "check", found.max_error, found.difference)

    def _unloaded_parameters(self) -> str:
        """Return the names of parameters that could not be copied, for the reason."""
        if not self._missing:
            return ""
        names = ", ".join(self._missing[:MAX_NAMES])
        more = (
            "" if len(self._missing) <= MAX_NAMES else f" and {len(self._missing) - MAX_NAMES} more"
        )
        return f" (ModelNew has no parameter or buffer named {names}{more})"

    def _note_error(self, found: Compared, kind: InputKind) -> None:
        self._errors[kind] = max(self._errors.get(kind, 0.0), found.max_error or 0.0)
        self.error_share = max(self.error_share or 0.0, found.share or 0.0)

    @property
    def max_error(self) -> float | None:
        """The largest error of the rounds that were right; None before the first one."""
        return max(self._errors.values(), default=None)

    @property
    def errors(self) -> tuple[DrawError, ...]:
        """The largest error on each kind of draw that was right."""
        return tuple(
            DrawError(inputs=KIND_NAMES.get(kind, kind), share=error)
            for kind, error in self._errors.items()
        )


def _round_line(number: int, kind: InputKind) -> str:
    """Return which round of the check failed, and on what inputs."""
    name = KIND_NAMES.get(kind, kind)
    drawn = "the task's own draw" if kind == "plain" else f"a draw of another kind ({name})"
    before = ", right in all rounds before" if number else ""
    return f"Wrong in round {number + 1} of the check, on {drawn}{before}:"
