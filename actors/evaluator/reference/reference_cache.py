"""A cache: the reference fixtures of the last tasks, or of their cases, warm until others come.

A run of many tasks has two of them under way, so that candidates of one are built while the device
measures the other.  Then each reference is loaded once, where there is memory for both.  One that
has no work waits: its processes use neither processors nor the card.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from actors.evaluator.ipc.layout_checks import total_bytes
from actors.evaluator.reference.fixture import IDLE_BYTES, ReferenceFixture, TaskProblem
from actors.evaluator.sandbox.confinement import ConfinementFactory
from actors.evaluator.sandbox.scratch import Scratch
from actors.evaluator.sandbox.zygote_client import ZygoteClient
from actors.work_context import STANDALONE, EvaluationContext
from protocol.settings import Precision
from protocol.values import Task

MAX_WARM = 4  # fixtures; a further one replaces the one that was used least recently
MAX_TASKS = 3  # one may be measured, one built, and one is over
# Of several tasks: the share of a card's free memory that judging one takes beside the others, and
# the bytes of their tensors on a host.
CARD_SHARE = 0.6
HOST_BYTES = 1 << 28


class ReferenceCache:
    """The reference fixtures of a few tasks, warm: one, or one for each of a few cases."""

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
        self._ending: list[ReferenceFixture] = []  # their processes are being killed

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
                self._found(cached)
                return cached
        self._make_room(task)
        opened = self._open(task, context)
        is_short = isinstance(opened, TaskProblem) and not opened.final
        if is_short and self.end_other_tasks(task):
            opened = self._open(task, context)  # there may be room without them
        if isinstance(opened, ReferenceFixture):
            self._found(opened)
        return opened

    def _open(self, task: Task, context: EvaluationContext) -> ReferenceFixture | TaskProblem:
        """Open a fixture while those that have to go end."""
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
            problem = fixture.open(context, self._await_ends)
        except BaseException:
            self.evict()  # a fixture that is half open must not be found by the next caller
            raise
        if problem is not None:
            self._end([fixture])
            self._await_ends()
            return problem
        return fixture

    def _found(self, fixture: ReferenceFixture) -> None:
        """End other tasks' fixtures until the rest fit together; note the task's size."""
        others = [each for each in self._fixtures if each.task.name != fixture.task.name]
        self._end([each for each in others if each.has_timing_memory])
        others = [each for each in others if not each.has_timing_memory]
        while not fit_together(self._fixtures):
            self._end([others.pop(0)])
        self._await_ends()
        fixture.held_by_others = 0 if fixture.on_host else sum(each.idle_bytes for each in others)
        self._confinements.task_bytes = tensor_bytes(fixture)

    def _make_room(self, task: Task) -> None:
        """Begin to end the fixtures that are not alive, of too many tasks, or too many."""
        others = [each.task.name for each in reversed(self._fixtures) if each.is_alive]
        names = [name for name in dict.fromkeys(others) if name != task.name][: MAX_TASKS - 1]
        kept = [
            each
            for each in self._fixtures
            if each.is_alive
            and (
                _is_sibling(each.task, task)
                or (each.task.name in names and not each.has_timing_memory)
            )
        ][1 - MAX_WARM :]
        self._end([each for each in self._fixtures if each not in kept])

    def end_other_tasks(self, task: Task) -> bool:
        """End the fixtures of all other tasks; return whether there were any."""
        others = [each for each in self._fixtures if each.task.name != task.name]
        self._end(others)
        self._await_ends()
        return bool(others)

    def _end(self, fixtures: Sequence[ReferenceFixture]) -> None:
        """Have these fixtures end, without waiting for that: `_await_ends` follows."""
        for fixture in fixtures:
            self._fixtures.remove(fixture)
            fixture.begin_close()
            self._ending.append(fixture)

    def _await_ends(self) -> None:
        while self._ending:
            fixture = self._ending.pop()
            fixture.close()
            self._scratch.remove(Path(fixture.confinement.folder))

    def evict(self) -> None:
        """End all fixtures."""
        self._end(list(self._fixtures))
        self._await_ends()


def _is_sibling(one: Task, other: Task) -> bool:
    """Whether both are cases of one task."""
    return one.name == other.name and one.case is not None and other.case is not None


def tensor_bytes(fixture: ReferenceFixture) -> int:
    """Return the bytes of a task's inputs, parameters and outputs."""
    facts = fixture.facts
    return sum(map(total_bytes, (facts.inputs, facts.state, facts.outputs)))


def fit_together(fixtures: Sequence[ReferenceFixture]) -> bool:
    """Whether fixtures of several tasks may all stay: the judging of one needs memory."""
    if len({each.task.name for each in fixtures}) < 2:
        return True
    if fixtures[0].on_host:
        return sum(map(tensor_bytes, fixtures)) <= HOST_BYTES
    # What the judged one holds besides its parameters is part of what judging it takes.
    idle = sum(each.idle_bytes for each in fixtures) - IDLE_BYTES
    needed = idle + max(each.task_bytes.most for each in fixtures)
    return needed <= CARD_SHARE * max(each.facts.free_bytes for each in fixtures)
