"""The standard at hand: that of the task which was judged last, kept until another one comes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from actors.evaluator.grounds import Grounds
from actors.evaluator.isolation.nursery import Nursery
from actors.evaluator.isolation.scratch import Scratch
from actors.evaluator.standard import Problem, Standard, silent
from actors.evaluator.wire.layout import total_bytes
from protocol.settings import Precision
from protocol.values import Task


class AtHand:
    """At most one standard, warm."""

    def __init__(
        self, nursery: Nursery, grounds: Grounds, scratch: Scratch, precision: Precision
    ) -> None:
        self._nursery = nursery
        self._grounds = grounds
        self._scratch = scratch
        self._precision = precision
        self._standard: Standard | None = None

    def of(self, task: Task, doing: Callable[[str], None] = silent) -> Standard | Problem:
        """Return the standard of `task`: the one at hand, or a new one.

        `doing` hears what of the task is waited for, and for how long at most.
        """
        held = self._standard
        if held is not None and held.alive and held.task == task:
            return held
        self.drop()
        self._nursery.awake()
        folder = self._scratch.fresh("task")
        confinement = self._grounds.confinement(folder, trusted=True)
        self._grounds.task_bytes = 0
        standard = Standard(
            self._nursery,
            task,
            self._grounds.limits,
            confinement,
            precision=self._precision,
            doing=doing,
        )
        self._standard = standard
        try:
            problem = standard.open()
        except BaseException:
            self.drop()  # half open it would be found, and believed, by the next who wants it
            raise
        if problem is not None:
            self.drop()
            return problem
        facts = standard.facts
        parts = (facts.inputs, facts.state, facts.outputs)
        self._grounds.task_bytes = sum(map(total_bytes, parts))
        return standard

    def drop(self) -> None:
        """End it, if there is one."""
        if self._standard is not None:
            self._standard.close()
            self._scratch.remove(Path(self._standard.confinement.folder))
            self._standard = None
