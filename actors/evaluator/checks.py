"""The check: a candidate's results on fresh inputs of several kinds, each time in other storage.

What it returned before must stay as it was, and what it was given must be left as the reference
leaves it.
"""

from __future__ import annotations

import os
import time

from actors.evaluator.examiner import Drawing
from actors.evaluator.isolation.child import Child, Gone
from actors.evaluator.standard import Standard
from actors.evaluator.verdicts import Fault, fault_of, wrong
from actors.evaluator.wire.layout import leaves
from actors.evaluator.wire.orders import Kind, Raised
from actors.evaluator.wire.referee_orders import Compared
from actors.evaluator.wire.runner_orders import Called, CallOnce, FromRunner

NAMES = 5
MORE_CHECKS_S = 5.0  # a slow task is not checked on all kinds of draws


class Checks:
    """One candidate's rounds of checks."""

    def __init__(
        self,
        standard: Standard,
        runner: Child[FromRunner],
        *,
        call_s: float,
        missing: tuple[str, ...],
    ) -> None:
        """`missing`: parameters that the candidate lacks, often the reason of wrong results."""
        self._standard = standard
        self._examiner = standard.examiner
        self._runner = runner
        self._call_s = call_s
        self._missing = missing
        self.max_error: float | None = None
        self.share: float | None = None  # of KernelBench's tolerance, at worst

    def run(self) -> Fault | None:
        """Compare results on fresh inputs, each time in storage that held others before."""
        earlier: tuple[Drawing, Called] | None = None
        drawn: list[Drawing] = []
        began, least = time.monotonic(), max(2, self._standard.task.checks)
        plain: list[Kind] = ["plain"]
        kinds = plain + self._standard.kinds
        try:
            for number, kind in enumerate(kinds + plain * (least - len(kinds))):
                if number >= least and time.monotonic() - began > MORE_CHECKS_S:
                    break
                drawing = self._examiner.draw(kind)
                drawn.append(drawing)
                called = self._round(drawing, number)
                if isinstance(called, Fault):
                    return called
                fault = self._unchanged(earlier, number)
                if fault is not None:
                    return fault
                earlier = (drawing, called)
        finally:
            for drawing in drawn:
                os.close(drawing.parcel)
                if self._runner.gone is None or self._standard.alive:
                    self._examiner.forget(drawing.number)
        return None

    def _round(self, drawing: Drawing, number: int) -> Called | Fault:
        runner = self._runner
        feed, carried = drawing.feed(0)
        answer = runner.ask(feed, self._call_s, carried)
        if isinstance(answer, Gone) or isinstance(answer[0], Raised):
            return fault_of(answer, "check", runner.output.text())
        guard = tuple(leaf.nbytes for leaf in leaves(self._standard.facts.outputs))
        order = CallOnce(slot=0, seed=drawing.seed, keep=number, guard=guard)
        answer = runner.ask(order, self._call_s)
        if isinstance(answer, Gone) or not isinstance(answer[0], Called):
            return fault_of(answer, "check", runner.output.text())
        called = answer[0]
        if called.breach:
            return wrong(f"it {called.breach[:200]}", "check")
        found = self._examiner.judge_output(
            runner, drawing.number, "check", called, number, share=number == 0
        )
        if not isinstance(found, Fault) and not found.reason:
            self._note_error(found)
            found = self._examiner.judge_inputs(runner, 0, drawing)
        if isinstance(found, Fault):
            return found
        if found.reason:
            return wrong(f"{found.reason}{self._unloaded()}", "check", found.max_error)
        return called

    def _unchanged(self, earlier: tuple[Drawing, Called] | None, number: int) -> Fault | None:
        """See that the call just made left the output of the one before alone."""
        if earlier is None or self._standard.facts.aliases:
            return None
        drawing, called = earlier
        found = self._examiner.judge_output(
            self._runner, drawing.number, "check", called, number - 1
        )
        if isinstance(found, Fault) or not found.reason:
            return found if isinstance(found, Fault) else None
        reason = f"a later call changed an output that was returned before: {found.reason}"
        return wrong(reason, "check", found.max_error)

    def _unloaded(self) -> str:
        """Say which parameters could not be copied: often the reason of wrong results."""
        if not self._missing:
            return ""
        names = ", ".join(self._missing[:NAMES])
        more = "" if len(self._missing) <= NAMES else f" and {len(self._missing) - NAMES} more"
        return f" (ModelNew has no parameter or buffer named {names}{more})"

    def _note_error(self, found: Compared) -> None:
        self.max_error = max(self.max_error or 0.0, found.max_error or 0.0)
        self.share = max(self.share or 0.0, found.share or 0.0)
