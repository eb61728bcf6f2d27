"""What is kept warm for one device, and the work of one turn on it.

A session has a zygote, the reference fixture of the last task, and the device with its health.  One
caller at a time uses it (`Judge` sees to that), and `reset` replaces what broke.  Its methods raise
`JudgeUnavailableError` when the machine is at fault, and `EvaluationCancelledError` when the result
is not wanted any more.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

import msgspec

from actors.evaluator import verdict_annotations
from actors.evaluator.build.build_ahead import Builder
from actors.evaluator.build.build_stage import BuildStage, FinishedBuild
from actors.evaluator.case_evaluation import CaseEvaluation, case_tasks, request_of_case
from actors.evaluator.case_references import combined_baselines, combined_reference
from actors.evaluator.devices import roofline
from actors.evaluator.devices.device_health import DeviceHealth
from actors.evaluator.devices.device_info import DeviceInfo
from actors.evaluator.evaluation import Evaluation, EvaluationRequest
from actors.evaluator.facts.task_facts import TaskFacts
from actors.evaluator.inspection_stage import InspectionStage, profile_context, with_profile
from actors.evaluator.ipc.layout_checks import describe, tensor_leaves
from actors.evaluator.ipc.orders import Confinement
from actors.evaluator.ipc.profile import KernelProfile
from actors.evaluator.profiling.exception_place import with_exception_place
from actors.evaluator.profiling.inspection import Inspector
from actors.evaluator.reference.fixture import ReferenceFixture, TaskProblem
from actors.evaluator.reference.reference_cache import ReferenceCache
from actors.evaluator.release_stage import ReleaseStage
from actors.evaluator.sandbox.confinement import ConfinementFactory
from actors.evaluator.sandbox.disk_space import DiskSpace
from actors.evaluator.sandbox.scratch import Scratch
from actors.evaluator.sandbox.zygote_client import ReferenceFailedError, ZygoteClient
from actors.evaluator.timing import baseline_cache, baselines
from actors.evaluator.timing.baseline_cache import BaselineCache, ReferenceBaselines
from actors.evaluator.timing.baselines import CompiledBaselines
from actors.work_context import STANDALONE, EvaluationContext
from protocol.release import Release
from protocol.settings import JudgeRules
from protocol.values import Outcome, Reference, Task, Verdict

# Makes the task's own module a candidate.
CONTROL = "\n\nclass ModelNew(Model):\n    pass\n"
LONG_PREPARATION_S = 1.0  # a shorter one is not logged
# After these outcomes the device is checked: a process ended that should not have ended.
ABNORMAL = (Outcome.CRASHED, Outcome.TIMED_OUT, Outcome.OUT_OF_MEMORY)


class DeviceSession:
    """One device, warm."""

    def __init__(
        self,
        confinements: ConfinementFactory,
        builder: Builder,
        scratch: Scratch,
        rules: JudgeRules,
        log_line: Callable[[str], None],
        *,
        min_level: int,
    ) -> None:
        """`min_level`: the sandbox level below which nothing is judged."""
        self.scratch = scratch
        self.confinements = confinements
        self.zygote = ZygoteClient(
            confinements.kind,
            scratch.root,
            confinements.limits.output_kib * 1024,
            min_level=min_level,
            hide=confinements.hide,
        )
        self.references = ReferenceCache(self.zygote, confinements, scratch, rules.precision)
        self.device_info = DeviceInfo(self.zygote, confinements, scratch)
        self._health = DeviceHealth(self.zygote, confinements, scratch, self.device_info, log_line)
        self._disk = DiskSpace(scratch.root.parent)
        self.builder = builder
        self._baselines = CompiledBaselines(
            BaselineCache(baseline_cache.cache_folder(dict(os.environ)))
        )
        self._inspector = Inspector(self.zygote)
        self._rules = rules
        self.is_device_wanted: Callable[[], bool] = lambda: False  # by another caller
        self._task_facts = TaskFacts(self.device_info, rules)
        self._log_line = log_line

    def reset(self) -> None:
        """End all processes of the session; the next turn starts new ones."""
        self.references.evict()
        self.zygote.stop()

    def measure(
        self, task: Task, context: EvaluationContext, *, defer_baselines: bool = False
    ) -> Reference | TaskProblem:
        """Measure a task's own module; `defer_baselines`: under torch.compile only if it is stored.

        A reference whose baselines are pending is completed by `measure_baselines`.
        """
        if not task.cases:
            return self._measure(task, context, defer_baselines=defer_baselines)
        measured: list[Reference] = []
        for each in case_tasks(task):
            found = self._measure(each, context, defer_baselines=defer_baselines)
            if isinstance(found, TaskProblem):
                name = each.case.name if each.case is not None else ""
                return TaskProblem(reason=f"case {name}: {found.reason}", final=found.final)
            measured.append(found)
        return combined_reference(task.cases, measured)

    def _measure(
        self, task: Task, context: EvaluationContext, *, defer_baselines: bool
    ) -> Reference | TaskProblem:
        """Measure one case, or a task without cases."""
        fixture = self.references.fixture_of(task, context)
        if isinstance(fixture, TaskProblem):
            return fixture
        context.set_activity("measuring")
        facts = fixture.facts
        device = self.device_info.device
        wants_compiled = self._rules.baselines == "all"
        measured = self._baselines.stored(task, device) if wants_compiled else None
        is_pending = wants_compiled and measured is None and defer_baselines
        if measured is not None:
            context.log_step("baselines taken from the store")
        elif wants_compiled and not is_pending:
            measured = self._baselines.measure(fixture, device, context)
        else:
            measured = ReferenceBaselines(eager_us=baselines.eager_time(fixture).us)
        fixture.note_time(measured.eager_us)
        return Reference(
            eager_us=measured.eager_us,
            compile_us=measured.compile_us,
            max_autotune_us=measured.max_autotune_us,
            baselines_pending=is_pending,
            device=device,
            inputs=describe(fixture.judged.inputs),
            outputs=describe(fixture.judged.outputs),
            notes=facts.notes,
            judged=fixture.judged,
            facts=self._task_facts.facts_of(fixture, measured.eager_us),
            floor_us=self._floor_us(sum(leaf.nbytes for leaf in tensor_leaves(facts.outputs))),
        )

    def measure_baselines(
        self, task: Task, reference: Reference, context: EvaluationContext
    ) -> Reference:
        """Return the reference with torch.compile's times, or with the reason why one is missing.

        Raises `ReferenceFailedError` where the task can't be judged on this device.
        """
        device = self.device_info.device
        if device.fingerprint != reference.device.fingerprint:
            name = reference.device.name or "the reference's device"
            note = f"torch.compile was not measured: no device like {name} was left"
            return msgspec.structs.replace(reference, baselines_pending=False, baselines_note=note)
        of_cases = [
            self._baselines.stored(each, device)
            or self._baselines.measure(self._fixture_of(each, context), device, context)
            for each in case_tasks(task)
        ]
        measured = combined_baselines(task.cases, of_cases)
        shown = baselines.on_clock_of(reference.eager_us, measured)
        return msgspec.structs.replace(
            reference,
            compile_us=shown.compile_us,
            max_autotune_us=shown.max_autotune_us,
            baselines_pending=False,
            baselines_note=baselines.missing_note(measured),
        )

    def _floor_us(self, output_bytes: int) -> float | None:
        """Return the least time of moving the outputs; None where no maker's figure is known."""
        device = self.device_info.device
        if device.kind == "cpu":
            return None  # the bandwidth of one core is not a limit
        return roofline.floor_us(output_bytes, 0, roofline.device_peak(device)) or None

    def judge(
        self, task: Task, request: EvaluationRequest, context: EvaluationContext
    ) -> Verdict | TaskProblem:
        """Judge one candidate, which may be built already.

        One that is short of a card's memory beside other tasks' references is judged again alone.
        """
        verdict = self._judge(task, request, context)
        is_short = isinstance(verdict, Verdict) and verdict.verdict is Outcome.OUT_OF_MEMORY
        was_built = request.built is None or request.built.fault is None  # builds use no card
        if is_short and was_built and self.references.end_other_tasks(task):
            # The second try must not find what the first try's runner left, so it builds anew.
            verdict = self._judge(task, msgspec.structs.replace(request, built=None), context)
        return verdict

    def _judge(
        self, task: Task, request: EvaluationRequest, context: EvaluationContext
    ) -> Verdict | TaskProblem:
        self._disk.require()
        fixture = self.references.fixture_of(case_tasks(task)[0], context)
        if isinstance(fixture, TaskProblem):
            return fixture
        with TurnBuilds(self, task, context) as builds:
            build = (
                FinishedBuild(request.built)
                if request.built
                else builds.stage("candidate", request.source)
            )
            self._health.before_candidate()
            control = partial(self._control, builds)
            limits = self.confinements.limits
            evaluation = Evaluation(
                fixture, self.device_info, request_of_case(request, task, limits), build
            )
            judged = CaseEvaluation(
                task, evaluation, self._fixture_of, control, context, self._log_line
            )
            verdict, profile = judged.run()
            verdict = InspectionStage(
                self._inspector,
                fixture,
                request,
                build.confinement,
                builds.stage,
                context,
                self.device_info.known_rates,
                self.is_device_wanted,
            ).run(verdict, self._rules)
            verdict = with_exception_place(verdict, request.source)
        self._disk.require_for(verdict.verdict, f"{verdict.reason} {verdict.log}")
        if verdict.verdict in ABNORMAL or judged.was_lost_under_profiler:
            self._health.after_abnormal_end()
        return self._labelled(verdict, task, request, profile)

    def _control(self, builds: TurnBuilds, beside: ReferenceFixture) -> Evaluation:
        """Return the evaluation of the task's own module as a candidate."""
        own = EvaluationRequest(source=f"{beside.task.source}{CONTROL}", labelled_source="")
        return Evaluation(beside, self.device_info, own, builds.stage("control", own.source))

    def _labelled(
        self,
        verdict: Verdict,
        task: Task,
        request: EvaluationRequest,
        profile: KernelProfile | None,
    ) -> Verdict:
        """Return a verdict with its labels, and what is known of the device and its memory."""
        if self._ran_out_of_memory(verdict, request):
            verdict = msgspec.structs.replace(verdict, verdict=Outcome.OUT_OF_MEMORY)
        labelled = verdict_annotations.with_labels(
            verdict, request.labelled_source, task.source, profile, self._rules
        )
        return msgspec.structs.replace(
            labelled,
            device=self.device_info.device.fingerprint,
            sandbox_level=self.zygote.ready.level,
        )

    def _fixture_of(self, task: Task, context: EvaluationContext = STANDALONE) -> ReferenceFixture:
        """Return the reference of a task that was measured; raise where it fails now."""
        found = self.references.fixture_of(task, context)
        if isinstance(found, TaskProblem):
            raise ReferenceFailedError(found.reason)
        return found

    def _ran_out_of_memory(self, verdict: Verdict, request: EvaluationRequest) -> bool:
        """Whether the candidate was killed because memory ran out: here, or where it was built."""
        if verdict.verdict is not Outcome.CRASHED:
            return False
        built = request.built
        return built.ran_out_of_memory if built and built.fault else self.zygote.ran_out_of_memory

    def release(self, task: Task, source: str, context: EvaluationContext) -> Release | TaskProblem:
        """Check a winner as a drop-in file, with no other task's reference on the card."""
        self.references.end_other_tasks(task)
        first, *others = case_tasks(task)
        more = tuple(self._fixture_of(each).judged for each in others)
        fixture = self.references.fixture_of(first)
        if isinstance(fixture, TaskProblem):
            return fixture
        with TurnBuilds(self, task) as builds:
            release = ReleaseStage(fixture, builds, context).run(source, more)
        if any("SIG" in reason or "no answer" in reason for reason in release.failed.values()):
            self._health.after_abnormal_end()
        return release

    def inspect(self, task: Task, source: str, verdict: Verdict) -> Verdict:
        """Return a winner's verdict with what the GPU maker's tools report of it.

        They use memory of the card as well, so no other task's reference is on it.
        """
        self.references.end_other_tasks(task)
        fixture = self.references.fixture_of(case_tasks(task)[0])
        if isinstance(fixture, TaskProblem):
            return verdict
        with TurnBuilds(self, task) as builds:

            def build_again() -> Confinement:
                stage = builds.stage("tool", source)
                stage.run(self.confinements.limits.build_s)
                return stage.confinement

            found = self._inspector.check_winner(fixture, source, build_again)
            context = profile_context(fixture, verdict, self.device_info.known_rates)
            profile = self._inspector.profile(fixture, source, build_again(), context)
        told = with_profile(verdict, profile)
        return msgspec.structs.replace(told, profile={**(told.profile or {}), **found})


class TurnBuilds(ExitStack):
    """The builds of one turn: each has a fresh folder, and all folders go at the turn's end."""

    def __init__(
        self, session: DeviceSession, task: Task, context: EvaluationContext = STANDALONE
    ) -> None:
        super().__init__()
        self._session = session
        self._task = task
        self._context = context

    def stage(self, name: str, source: str) -> BuildStage:
        """Return the build of `source` in a fresh folder of this name."""
        session = self._session
        folder = session.scratch.fresh(name.replace(" ", "-"))
        self.callback(session.scratch.remove, folder)
        began = time.monotonic()
        stage = session.builder.build_stage(
            source,
            session.zygote,
            folder,
            session.device_info.arch,
            self._context.is_revoked,
            self._task.modules,
        )
        seconds = time.monotonic() - began
        if seconds > LONG_PREPARATION_S:
            self._context.log_step("headers of fast builds prepared", seconds=round(seconds, 1))
        return stage
