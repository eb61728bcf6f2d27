"""The standard that candidates of one task are held to: a referee and a reference runner, warm.

Both run the task's own code, which is trusted.  If one of them dies it is nobody's verdict: the
world failed, and the judge tries again.
"""

from __future__ import annotations

import math
import os
import re
import secrets
from collections.abc import Callable

from actors.evaluator.ipc import logs
from actors.evaluator.ipc.layout_checks import total_bytes
from actors.evaluator.ipc.orders import (
    CandidateRaised,
    Confinement,
    Done,
    ImportSource,
    InputKind,
    Order,
)
from actors.evaluator.ipc.referee_orders import (
    FromReferee,
    ImportTask,
    InputKindResult,
    MakeModel,
    PrepareTask,
    TaskPrepared,
    TaskUnsuitable,
    TryInputKind,
)
from actors.evaluator.ipc.runner_orders import ConstructModule, FromRunner, LoadParameters
from actors.evaluator.reference.referee_client import RefereeClient
from actors.evaluator.sandbox.child_client import ChildClient, ChildFailure
from actors.evaluator.sandbox.freezer import ProcessFreezer, freezer_for_new_children
from actors.evaluator.sandbox.zygote_client import (
    DeviceMemoryFullError,
    ReferenceFailedError,
    ZygoteClient,
)
from protocol.release import Judged
from protocol.settings import Limits, Precision
from protocol.values import Task, Value

INPUT_KINDS: tuple[InputKind, ...] = ("shifted", "sparse", "scaled", "spikes", "blocks", "permuted")


# What torch and the driver (CUDA_ERROR_OUT_OF_MEMORY) say of a full card.
MEMORY_FULL = re.compile(r"CUDA out of memory|failed with CUDA error 2\b")
LARGE_BYTES, FEW_KINDS = 1 << 30, 1  # with gigabytes of inputs one other kind must do


def discard_line(_words: str = "") -> None:
    """Say nothing."""


class TaskProblem(Value, frozen=True, kw_only=True):
    """Why a task can't be judged: the user's to repair."""

    reason: str
    final: bool = False  # it would be the same with memory of another kind


class ReferenceFixture:
    """One task's referee and reference runner."""

    def __init__(
        self,
        zygote: ZygoteClient,
        task: Task,
        limits: Limits,
        confinement: Confinement,
        *,
        precision: Precision = "task",
        doing: Callable[[str], None] = discard_line,
    ) -> None:
        """`doing` hears what of the task is waited for, and for how long at most."""
        self._doing = doing
        self.zygote = zygote
        self.task = task
        self._precision = precision
        self.limits = limits
        self.confinement = confinement
        self.seed = secrets.randbits(62)  # of the construction: candidates get the same
        self.facts: TaskPrepared
        self.referee: RefereeClient
        self._referee_child: ChildClient[FromReferee]
        self.runner: ChildClient[FromRunner]
        self.freezer = ProcessFreezer(set())
        self.kinds: list[InputKind] = []  # other draws that the task bears
        self.best_us = math.inf  # the least that a call of the reference ever took
        self._buffers: list[int] = []
        self._started: list[ChildClient[FromReferee] | ChildClient[FromRunner]] = []

    @property
    def is_deterministic(self) -> bool:
        return self.facts.is_deterministic

    @property
    def judged(self) -> Judged:
        """What the figures of candidates hold for."""
        facts = self.facts
        return Judged(
            device=self.zygote.device,
            init=facts.init,
            inputs=facts.inputs,
            outputs=facts.outputs,
            state=facts.state,
        )

    @property
    def on_host(self) -> bool:
        """Whether it is judged on the host: the judge's word, whatever the task was meant for."""
        return self.zygote.device == "cpu"

    @property
    def uses_device_memory(self) -> bool:
        """Whether bytes are handed over in device memory."""
        return self.referee.uses_device_memory

    def open(self) -> TaskProblem | None:
        """Start both; say what is wrong with the task, if anything is."""
        # Device memory as far as the driver shares it between such processes; else the host's.
        tries = (True, False) if self.zygote.device == "cuda" else (False,)
        for lend in tries:
            problem = self._open(lend)
            if problem is None and self._fits_device():
                return self._find_input_kinds()
            self.close()
            if problem is not None and (problem.final or not lend):
                return problem
        raise self.failure("it can't take its own parameters")

    def _open(self, lend: bool) -> TaskProblem | None:
        with freezer_for_new_children(self.zygote) as freezer:
            self._referee_child = self.zygote.spawn(
                "referee", self.confinement, FromReferee, trusted=True
            )
        self._started.append(self._referee_child)
        self.referee = RefereeClient(
            self._referee_child, self.failure, check_s=self.limits.check_s, uses_device_memory=lend
        )
        freezer.boost_priority_of_all()
        answer = self._prepare(
            PrepareTask(seed=self.seed, use_device_memory=lend, precision=self._precision)
        )
        if isinstance(answer, TaskProblem):
            return answer
        said, self._buffers = answer
        if isinstance(said, TaskUnsuitable):
            return TaskProblem(reason=self._clean(said.reason))
        if not isinstance(said, TaskPrepared):
            raise self.failure(answer)
        self.facts = said
        return None

    def _prepare(self, last: PrepareTask) -> tuple[FromReferee, list[int]] | TaskProblem:
        """Go through the task's own code step by step, each within a limit of its own."""
        limits = self.limits
        source, modules = self.task.source, self.task.modules
        steps: tuple[tuple[str, str, float, Order], ...] = (
            ("import", "import_s", limits.import_s, ImportTask(source=source, modules=modules)),
            # What it needs of memory is foreseen there, and that takes its inputs, too.
            ("Model(...) and get_inputs()", "check_s", limits.check_s, MakeModel(seed=self.seed)),
            ("get_inputs() and forward", "check_s", limits.check_s, last),
        )
        for what, limit, seconds, order in steps:
            self._doing(f"waiting for the task's {what} (limit {seconds:g} s)")
            answer = self._referee_child.ask(order, seconds)
            if isinstance(answer, ChildFailure):
                return self._problem_of(answer, f"the task's {what}", limit)
            if order is last or not isinstance(answer[0], Done):
                return answer
        raise AssertionError("the last step returns")

    @property
    def _patience(self) -> float:
        return self.limits.import_s + self.limits.check_s

    def _fits_device(self) -> bool:
        """Start the runner; whether it can take what the referee hands over."""
        with freezer_for_new_children(self.zygote) as self.freezer:
            self.runner = self.zygote.spawn("runner", self.confinement, FromRunner, trusted=False)
        self._started.append(self.runner)
        self._tell(self.import_order())
        for order, carried in (self.construct_order(), self.load_order()):
            answer = self.runner.ask(order, self._patience, carried)
            if isinstance(answer, ChildFailure):
                raise self.failure(answer)
            if isinstance(answer[0], CandidateRaised):
                return False
        return True

    def _find_input_kinds(self) -> TaskProblem | None:
        """Find out which other draws the task bears; one that kills the referee is not borne."""
        large = total_bytes(self.facts.inputs) > LARGE_BYTES
        for kind in INPUT_KINDS[:FEW_KINDS] if large else INPUT_KINDS:
            answer = self._referee_child.ask(
                TryInputKind(kind=kind, seed=secrets.randbits(62)), self._patience
            )
            if not isinstance(answer, ChildFailure):
                if isinstance(answer[0], InputKindResult) and answer[0].accepted:
                    self.kinds.append(kind)
                continue
            # A device-side assertion ends a CUDA context: begin again, and ask no more of it.
            self.close()
            problem = self._open(self.uses_device_memory)
            if problem is not None or not self._fits_device():
                return problem
            return None
        return None

    def import_order(self, candidate: str | None = None) -> ImportSource:
        """Return the order that imports a candidate, or the task itself, beside its modules."""
        if candidate is None:
            return ImportSource(
                source=self.task.source, class_name="Model", modules=self.task.modules
            )
        return ImportSource(source=candidate, class_name="ModelNew", modules=self.task.modules)

    def _problem_of(self, failure: ChildFailure, what: str, limit: str) -> TaskProblem:
        if failure.how == "timed_out":
            return TaskProblem(
                reason=f"{what} took more than {failure.seconds:g} s: see what it waits for, or "
                f"raise"
                f" {limit} under [limits] in stark.toml",
                final=True,
            )
        said = logs.one_line(self._referee_child.output.text()[-300:])
        if failure.how == "lost":
            raise self.failure(failure)
        return TaskProblem(
            reason=self._clean(f"the task could not be prepared: {failure.readable()}. {said}")
        )

    def _clean(self, words: str) -> str:
        return logs.one_line(logs.clean_log(words, [self.confinement.folder]))

    def refresh_buffers(self) -> None:
        """Have what modules are made of in memory that no candidate has held.

        On the host it is sealed; what is handed over on the card can be written to.
        """
        if self.uses_device_memory:
            fresh = self.referee.fresh_buffers()
            self._close_buffers()
            self._buffers = fresh

    def construct_order(self) -> tuple[ConstructModule, list[int]]:
        """Return the order that constructs a module as the reference was."""
        return ConstructModule(seed=self.seed, init=self.facts.init), self._buffers[:1]

    def load_order(self) -> tuple[LoadParameters, list[int]]:
        """Return the order that copies the reference's parameters and buffers in."""
        return LoadParameters(state=self.facts.state), self._buffers[1:3]

    def _tell(self, order: Order, carried: list[int] | None = None) -> None:
        seconds = self.limits.import_s + self.limits.check_s
        answer = self.runner.ask(order, seconds, carried or [])
        if isinstance(answer, ChildFailure) or isinstance(answer[0], CandidateRaised):
            raise self.failure(answer)

    def failure(self, answer: object) -> ReferenceFailedError:
        """Return the error for a trusted child that gave no good answer."""
        said = answer[0] if isinstance(answer, tuple) else answer
        words = said.readable() if isinstance(said, ChildFailure) else str(said)[:300]
        text = " ".join(child.output.text()[-300:] for child in self._started)
        kind = (
            DeviceMemoryFullError
            if MEMORY_FULL.search(text) and self.zygote.device == "cuda"
            else ReferenceFailedError
        )
        return kind(self._clean(f"the reference failed: {words} {text}"))

    @property
    def is_alive(self) -> bool:
        return all(child.failure is None for child in self._started)

    def note_time(self, us: float | None) -> None:
        """Remember the reference's best time, whoever measured it."""
        self.best_us = min(self.best_us, us or math.inf)

    def close(self) -> None:
        """End both."""
        for child in self._started:
            child.kill()
        self._close_buffers()
        self._started = []

    def _close_buffers(self) -> None:
        while self._buffers:
            os.close(self._buffers.pop())
