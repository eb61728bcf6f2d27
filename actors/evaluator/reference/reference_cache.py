"""A cache of one: the reference fixture of the last task, kept warm until another task comes."""

from __future__ import annotations

from pathlib import Path

from actors.evaluator.ipc.layout_checks import total_bytes
from actors.evaluator.reference.fixture import ReferenceFixture, TaskProblem
from actors.evaluator.sandbox.confinement import ConfinementFactory
from actors.evaluator.sandbox.scratch import Scratch
from actors.evaluator.sandbox.zygote_client import ZygoteClient
from actors.work_context import STANDALONE, EvaluationContext
from protocol.settings import Precision
from protocol.values import Task


class ReferenceCache:
    """At most one reference fixture, warm."""

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
        self, task: Task, context: EvaluationContext = STANDALONE
    ) -> ReferenceFixture | TaskProblem:
        """Return the fixture of `task`: the cached one, or a new one.

        `context` is told which part of the task is waited for, and for how long at most.
        """
        cached = self._fixture
        if cached is not None and cached.is_alive and cached.task == task:
            return cached
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
        )
        self._fixture = fixture
        try:
            problem = fixture.open(context)
        except BaseException:
            self.evict()  # a fixture that is half open must not be found by the next caller
            raise
        if problem is not None:
            self.evict()
            return problem
        facts = fixture.facts
        parts = (facts.inputs, facts.state, facts.outputs)
        self._confinements.task_bytes = sum(map(total_bytes, parts))
        return fixture

    def evict(self) -> None:
        """End the fixture, if there is one."""
        if self._fixture is not None:
            self._fixture.close()
            self._scratch.remove(Path(self._fixture.confinement.folder))
            self._fixture = None
