"""The standard at hand: that of the task which was judged last, kept until another one comes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from actors.evaluator.ipc.layout_checks import total_bytes
from actors.evaluator.reference.fixture import ReferenceFixture, TaskProblem, discard_line
from actors.evaluator.sandbox.confinement import ConfinementFactory
from actors.evaluator.sandbox.scratch import Scratch
from actors.evaluator.sandbox.zygote_client import ZygoteClient
from protocol.settings import Precision
from protocol.values import Task


class ReferenceCache:
    """At most one standard, warm."""

    def __init__(
        self,
        zygote: ZygoteClient,
        confinements: ConfinementFactory,
        scratch: Scratch,
        precision: Precision,
    ) -> None:
        self._zygote = zygote
        self._confinements = confinements
        self._scratch = scratch
        self._precision = precision
        self._fixture: ReferenceFixture | None = None

    def fixture_of(
        self, task: Task, doing: Callable[[str], None] = discard_line
    ) -> ReferenceFixture | TaskProblem:
        """Return the standard of `task`: the one at hand, or a new one.

        `doing` hears what of the task is waited for, and for how long at most.
        """
        held = self._fixture
        if held is not None and held.is_alive and held.task == task:
            return held
        self.evict()
        self._zygote.ensure_started()
        folder = self._scratch.fresh("task")
        confinement = self._confinements.confinement(folder, trusted=True)
        self._confinements.task_bytes = 0
        fixture = ReferenceFixture(
            self._zygote,
            task,
            self._confinements.limits,
            confinement,
            precision=self._precision,
            doing=doing,
        )
        self._fixture = fixture
        try:
            problem = fixture.open()
        except BaseException:
            self.evict()  # half open it would be found, and believed, by the next who wants it
            raise
        if problem is not None:
            self.evict()
            return problem
        facts = fixture.facts
        parts = (facts.inputs, facts.state, facts.outputs)
        self._confinements.task_bytes = sum(map(total_bytes, parts))
        return fixture

    def evict(self) -> None:
        """End it, if there is one."""
        if self._fixture is not None:
            self._fixture.close()
            self._scratch.remove(Path(self._fixture.confinement.folder))
            self._fixture = None
