"""A cache: the reference fixtures of the last task, or of its cases, warm until another comes."""

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

MAX_WARM = 4  # cases of one task; a further one replaces the one that was used least recently


class ReferenceCache:
    """The reference fixtures of one task, warm: one, or one for each of a few cases."""

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
        self._fixtures: list[ReferenceFixture] = []  # the one that was used last is the last

    def fixture_of(
        self, task: Task, context: EvaluationContext = STANDALONE
    ) -> ReferenceFixture | TaskProblem:
        """Return the fixture of `task`: a cached one, or a new one.

        `context` is told which part of the task is waited for, and for how long at most.
        """
        for cached in self._fixtures:
            if cached.is_alive and cached.task == task:
                self._fixtures.remove(cached)
                self._fixtures.append(cached)
                self._note_task_bytes(cached)
                return cached
        self._make_room(task)
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
        self._fixtures.append(fixture)
        try:
            problem = fixture.open(context)
        except BaseException:
            self.evict()  # a fixture that is half open must not be found by the next caller
            raise
        if problem is not None:
            self.evict()
            return problem
        self._note_task_bytes(fixture)
        return fixture

    def _note_task_bytes(self, fixture: ReferenceFixture) -> None:
        facts = fixture.facts
        parts = (facts.inputs, facts.state, facts.outputs)
        self._confinements.task_bytes = sum(map(total_bytes, parts))

    def _make_room(self, task: Task) -> None:
        """End the fixtures that are not alive, of other tasks, or too many."""
        for fixture in list(self._fixtures):
            is_sibling = (
                fixture.is_alive
                and task.case is not None
                and fixture.task.case is not None
                and fixture.task.name == task.name
            )
            if not is_sibling:
                self._end(fixture)
        while len(self._fixtures) >= MAX_WARM:
            self._end(self._fixtures[0])

    def _end(self, fixture: ReferenceFixture) -> None:
        self._fixtures.remove(fixture)
        fixture.close()
        self._scratch.remove(Path(fixture.confinement.folder))

    def evict(self) -> None:
        """End all fixtures."""
        for fixture in list(self._fixtures):
            self._end(fixture)
