"""The reference fixture of one task: its referee and its reference runner, kept warm.

Both run the task's own code, which is trusted.  If one of them dies, that is a failure of the
machine and no candidate's verdict; the judge tries again.
"""

from __future__ import annotations

import math
import os
import re
import secrets
import time
from collections.abc import Callable

import msgspec

from actors.evaluator.ipc import logs
from actors.evaluator.ipc.card_memory import PARAMETER_COPIES, TaskBytes, gib
from actors.evaluator.ipc.layout_checks import Nest, slot_bytes, total_bytes
from actors.evaluator.ipc.orders import (
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
    TryMixing,
)
from actors.evaluator.ipc.runner_orders import ConstructModule, FromRunner, LoadParameters
from actors.evaluator.reference.referee_client import RefereeClient
from actors.evaluator.reference.runner_start import FailedStart, StartOrder, start_runner
from actors.evaluator.sandbox.child_client import ChildClient, ChildFailure
from actors.evaluator.sandbox.freezer import ProcessFreezer, freezer_for_new_children
from actors.evaluator.sandbox.zygote_client import (
    DeviceMemoryFullError,
    ReferenceFailedError,
    ZygoteClient,
)
from actors.work_context import STANDALONE, EvaluationContext
from protocol.release import Judged
from protocol.settings import Limits, Precision
from protocol.values import Task, Value

INPUT_KINDS: tuple[InputKind, ...] = (
    "shifted",
    "missing",
    "sparse",
    "scaled",
    "spikes",
    "blocks",
    "permuted",
    "uneven",
    "large",
    "near one",
)

# What torch and the driver (CUDA_ERROR_OUT_OF_MEMORY) report when a GPU's memory is full.
MEMORY_FULL = re.compile(r"CUDA out of memory|failed with CUDA error 2\b")
# What a call may take that prepares nothing: so many seconds, or so many times what the referee
# took for the task's get_inputs() and several calls of its own module.
PLAIN_CALL_S, PLAIN_CALL_TIMES = 10.0, 10.0
# Bytes of a card besides copies of parameters: two contexts, and what a referee's allocator keeps.
IDLE_BYTES = 6 << 30
LARGE_BYTES, FEW_KINDS = 1 << 30, 1  # with gigabytes of inputs only one other kind is used


class TaskProblem(Value, frozen=True, kw_only=True):
    """Why a task can't be judged; the user has to repair it."""

    reason: str
    final: bool = False  # whether other or more memory would not help


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
    ) -> None:
        """`precision`: the lowest that is accepted."""
        self.zygote = zygote
        self.task = task
        self._precision = precision
        self.limits = limits
        self.confinement = confinement
        self.seed = secrets.randbits(62)  # for constructing modules: candidates get the same
        self.facts: TaskPrepared
        self.referee: RefereeClient
        self._referee_child: ChildClient[FromReferee]
        self.runner: ChildClient[FromRunner]
        self.freezer = ProcessFreezer(set())
        self.input_kinds: list[InputKind] = []  # other kinds of inputs that the task accepts
        self._is_mixing = False  # slots are filled from two draws
        self.best_us = math.inf  # the least that a call of the reference took so far
        # Bytes of a card that other tasks' fixtures hold at most.  Those that were there before it
        # are counted in the free bytes, too: blocks are rather too short than too long.
        self.held_by_others = 0
        self.has_timing_memory = False  # a cancelled timing left its blocks' memory
        self._prepared_s = 0.0  # the referee's last step took, with some calls of the module
        self._buffers: list[int] = []
        self._started: list[ChildClient[FromReferee] | ChildClient[FromRunner]] = []

    @property
    def is_deterministic(self) -> bool:
        """Whether the same inputs give the same outputs."""
        return self.facts.is_deterministic

    @property
    def task_bytes(self) -> TaskBytes:
        """The bytes of the inputs in a slot, and of the outputs."""
        facts = self.facts
        return TaskBytes(
            inputs=slot_bytes(facts.inputs),
            outputs=total_bytes(facts.outputs),
            working=facts.working_bytes,
            has_double=facts.has_double,
            is_mixed=self._is_mixing,
        )

    @property
    def memory_need(self) -> str:
        """What judging takes of the card besides the candidate, and what was free."""
        return (
            f"judging this task takes {gib(self.task_bytes.most)} besides what the candidate "
            f"allocates for itself, and {gib(self.free_bytes)} were free before it"
        )

    @property
    def free_bytes(self) -> int:
        """The bytes that are free on a card; on a host, those of one timed block."""
        return self.facts.free_bytes - self.held_by_others

    @property
    def idle_bytes(self) -> int:
        """The most that it holds of a card between two candidates."""
        return IDLE_BYTES + PARAMETER_COPIES * total_bytes(self.facts.state)

    @property
    def judged(self) -> Judged:
        """The device and layouts that candidates' figures are valid for."""
        facts = self.facts
        inputs, outputs = facts.inputs, facts.outputs
        if facts.form.backward and isinstance(inputs, Nest) and isinstance(outputs, Nest):
            # Without the gradients that `children/call_form.py` hands in and gets back.
            inputs = msgspec.structs.replace(inputs, items=inputs.items[:-1])
            outputs = outputs.items[0]
        return Judged(
            device=self.zygote.device,
            init=facts.init,
            inputs=inputs,
            outputs=outputs,
            state=facts.state,
            carried=facts.carried,
            dtype=facts.form.dtype,
            gradients=facts.form.inputs if facts.form.backward else None,
        )

    @property
    def on_host(self) -> bool:
        """Whether the judge uses the host, also for a task that was written for a GPU."""
        return self.zygote.device == "cpu"

    @property
    def uses_device_memory(self) -> bool:
        """Whether bytes are passed in device memory."""
        return self.referee.uses_device_memory

    def open(
        self,
        context: EvaluationContext = STANDALONE,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> TaskProblem | None:
        """Start referee and runner; return what is wrong with the task, if anything is.

        `context` is told which part of the task is waited for, and for how long at most.
        `meanwhile` is called while the processes start, and before they need memory.
        """
        # Device memory, if the driver shares it between such processes; else the host's memory.
        tries = (True, False) if self.zygote.device == "cuda" else (False,)
        for use_device_memory in tries:
            problem = self._open(use_device_memory, context, meanwhile)
            if problem is None and self._has_fitting_runner():
                return self._find_input_kinds(context)
            self.close()
            if problem is not None and (problem.final or not use_device_memory):
                return problem
        raise self.failure("it can't take its own parameters")

    def _open(
        self,
        use_device_memory: bool,
        context: EvaluationContext,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> TaskProblem | None:
        """Start the referee and have it prepare the task."""
        with freezer_for_new_children(self.zygote) as freezer:
            self._referee_child = self.zygote.spawn(
                "referee", self.confinement, FromReferee, trusted=True
            )
        self._started.append(self._referee_child)
        self.referee = RefereeClient(
            self._referee_child,
            self.failure,
            check_s=self.limits.check_s,
            uses_device_memory=use_device_memory,
        )
        freezer.boost_priority_of_all()
        order = PrepareTask(
            seed=self.seed, use_device_memory=use_device_memory, precision=self._precision
        )
        answer = self._prepare(order, context, meanwhile)
        if isinstance(answer, TaskProblem):
            return answer
        prepared, self._buffers = answer
        if isinstance(prepared, TaskUnsuitable):
            return TaskProblem(reason=self._clean(prepared.reason))
        if not isinstance(prepared, TaskPrepared):
            raise self.failure(answer)
        self.facts = prepared
        return None

    def _prepare(
        self, last: PrepareTask, context: EvaluationContext, meanwhile: Callable[[], None]
    ) -> tuple[FromReferee, list[int]] | TaskProblem:
        """Run the task's own code step by step, each within a limit of its own."""
        limits = self.limits
        task = self.task
        imported = ImportTask(
            source=task.source, modules=task.modules, case=task.case, backward=task.backward
        )
        steps: tuple[tuple[str, str, float, Order], ...] = (
            ("import", "import_s", limits.import_s, imported),
            # This step also estimates the memory that the task needs, which takes its inputs.
            ("Model(...) and get_inputs()", "check_s", limits.check_s, MakeModel(seed=self.seed)),
            ("get_inputs() and forward", "check_s", limits.check_s, last),
        )
        for what, limit, seconds, order in steps:
            context.set_activity(f"waiting for the task's {what} (limit {seconds:g} s)")
            began = time.monotonic()
            failed = self._referee_child.send_order(order, seconds)
            if order is imported:
                meanwhile()
            answer = failed or self._referee_child.receive_answer(seconds)
            self._prepared_s = time.monotonic() - began
            if isinstance(answer, ChildFailure):
                return self._problem_of(answer, f"the task's {what}", limit)
            if order is last or not isinstance(answer[0], Done):
                return answer
        raise AssertionError("the last step returns")

    @property
    def plain_call_s(self) -> float:
        """What a call may take that prepares nothing: work without an end is not a slow start."""
        most_s = max(PLAIN_CALL_S, PLAIN_CALL_TIMES * self._prepared_s)
        return min(self.limits.check_s, most_s)

    @property
    def _order_limit_s(self) -> float:
        return self.limits.import_s + self.limits.check_s

    def _has_fitting_runner(self) -> bool:
        """Start the runner; return whether it can use the memory that the referee passes."""
        with freezer_for_new_children(self.zygote) as self.freezer:
            self.runner = self.zygote.spawn("runner", self.confinement, FromRunner, trusted=False)
        self._started.append(self.runner)
        limit_s = self._order_limit_s
        failed = start_runner(self.runner, self.start_orders(), import_s=limit_s, check_s=limit_s)
        if not isinstance(failed, FailedStart):
            return True
        if failed.stage == "import" or isinstance(failed.answer, ChildFailure):
            raise self.failure(failed.answer)
        return False

    def _find_input_kinds(self, context: EvaluationContext) -> TaskProblem | None:
        """Find out which other inputs the task accepts; one that kills it is not."""
        large = total_bytes(self.facts.inputs) > LARGE_BYTES
        trials: list[tuple[InputKind | None, Order]] = [
            (None, TryMixing(seed=secrets.randbits(48)))
        ]
        for kind in INPUT_KINDS[:FEW_KINDS] if large else INPUT_KINDS:
            if kind == "large" and self._precision != "task":
                continue  # what a lower precision rounds off a large number decides a softmax
            trials.append((kind, TryInputKind(kind=kind, seed=secrets.randbits(62))))
        for tried, order in trials:
            answer = self._referee_child.ask(order, self._order_limit_s)
            if not isinstance(answer, ChildFailure):
                is_accepted = isinstance(answer[0], InputKindResult) and answer[0].accepted
                if tried is None:
                    self._is_mixing = is_accepted
                elif is_accepted:
                    self.input_kinds.append(tried)
                continue
            # A device-side assertion ends a CUDA context: start again, and try nothing else.
            self.close()
            problem = self._open(self.uses_device_memory, context)
            if problem is not None or not self._has_fitting_runner():
                return problem
            return None
        return None

    def start_orders(self, candidate: str | None = None) -> tuple[StartOrder, ...]:
        """Return the orders that make a runner's module: a candidate's, or the task's own.

        It is imported with the task's modules, constructed as the reference was, and gets the
        reference's parameters and buffers.
        """
        task, facts = self.task, self.facts
        source, name = (task.source, "Model") if candidate is None else (candidate, "ModelNew")
        imported = ImportSource(source=source, class_name=name, modules=task.modules)
        constructed = ConstructModule(
            seed=self.seed, init=facts.init, form=facts.form, fills_on_card=facts.fills_on_card
        )
        loaded = LoadParameters(state=facts.state)
        return (
            StartOrder(imported, [], "import"),
            StartOrder(constructed, self._buffers[:1], "check"),
            StartOrder(loaded, self._buffers[1:3], "check"),
        )

    def _problem_of(self, failure: ChildFailure, what: str, limit: str) -> TaskProblem:
        if failure.how == "timed_out":
            return TaskProblem(
                reason=f"{what} took more than {failure.seconds:g} s: see what it waits for, or "
                f"raise {limit} under [limits] in stark.toml",
                final=True,
            )
        output = logs.one_line(self._referee_child.output.text()[-300:])
        if failure.how == "lost":
            raise self.failure(failure)
        return TaskProblem(
            reason=self._clean(f"the task could not be prepared: {failure.readable()}. {output}")
        )

    def _clean(self, text: str) -> str:
        return logs.one_line(logs.clean_log(text, [self.confinement.folder]))

    def refresh_buffers(self) -> None:
        """Put parameters and buffers into memory that no candidate has had.

        On a host that memory is sealed against writing; on a GPU a candidate can write to it.
        """
        if self.uses_device_memory:
            fresh = self.referee.fresh_buffers()
            self._close_buffers()
            self._buffers = fresh

    def failure(self, answer: object) -> ReferenceFailedError:
        """Return the error for a trusted child that gave no good answer."""
        first = answer[0] if isinstance(answer, tuple) else answer
        reason = first.readable() if isinstance(first, ChildFailure) else str(first)[:300]
        output = " ".join(child.output.text()[-300:] for child in self._started)
        error_class = (
            DeviceMemoryFullError
            if MEMORY_FULL.search(output) and self.zygote.device == "cuda"
            else ReferenceFailedError
        )
        return error_class(self._clean(f"the reference failed: {reason} {output}"))

    @property
    def is_alive(self) -> bool:
        """Whether both children still answer."""
        return all(child.failure is None for child in self._started)

    def note_time(self, us: float | None) -> None:
        """Remember the reference's best time of all measurements."""
        self.best_us = min(self.best_us, us or math.inf)

    def close(self) -> None:
        """End both children, at the same time: a process on a card takes a tenth of a second."""
        self.begin_close()
        for child in self._started:
            child.kill()
        self._close_buffers()
        self._started = []

    def begin_close(self) -> None:
        """Have both children killed, without waiting for that: `close` follows."""
        for child in self._started:
            child.close_lifeline()

    def _close_buffers(self) -> None:
        while self._buffers:
            os.close(self._buffers.pop())
