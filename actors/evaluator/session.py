"""The judge's bench: what stands ready for one device, and what is done on it in one turn.

A warm zygote, the standard of the task at hand, the card and its health.  Whoever uses it has it
alone (`Judge` sees to that); what broke is replaced by `reset`.  Raises `JudgeUnavailableError`
when the world is at fault and `EvaluationCancelledError` when nobody waits any more.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

import msgspec

from actors.evaluator import verdict_annotations
from actors.evaluator.build.ahead import Builder
from actors.evaluator.build.stage import BuildResult, BuildStage
from actors.evaluator.devices.card import DeviceInfo
from actors.evaluator.devices.device_health import DeviceHealth
from actors.evaluator.evaluation import Evaluation
from actors.evaluator.ipc.layout_checks import describe
from actors.evaluator.ipc.orders import Confinement
from actors.evaluator.profiling import inspection
from actors.evaluator.reference.fixture import ReferenceFixture, TaskProblem
from actors.evaluator.reference.reference_cache import ReferenceCache
from actors.evaluator.release_stage import ReleaseStage
from actors.evaluator.remeasure import judge_twice_if_doubtful
from actors.evaluator.sandbox.confinement import ConfinementFactory
from actors.evaluator.sandbox.disk_space import DiskSpace
from actors.evaluator.sandbox.scratch import Scratch
from actors.evaluator.sandbox.zygote_client import ZygoteClient
from actors.evaluator.timing import baseline_cache, baselines
from actors.evaluator.timing.audit import GroupClaim
from actors.evaluator.timing.baseline_cache import BaselineCache
from protocol.release import Release
from protocol.settings import JudgeRules
from protocol.values import Outcome, Reference, Task, Verdict

# After these a card is looked after: something ended that was not to end.
ABNORMAL = (Outcome.CRASHED, Outcome.TIMED_OUT, Outcome.OUT_OF_MEMORY)


class DeviceSession:
    """One device's bench."""

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
        """`min_level`: the level of the sandbox below which nothing is judged."""
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
        self._health = DeviceHealth(self.zygote, confinements, scratch, self.device_info)
        self._disk = DiskSpace(scratch.root.parent)
        self._builder = builder
        self._baselines = BaselineCache(baseline_cache.cache_folder(dict(os.environ)))
        self._rules = rules
        self._log_line = log_line

    def reset(self) -> None:
        """End what stands here; the next turn begins with everything fresh."""
        self.references.evict()
        self.zygote.stop()

    def measure(self, task: Task, set_activity: Callable[[str], None]) -> Reference | TaskProblem:
        """Measure a task's own module."""
        fixture = self.references.fixture_of(task, set_activity)
        if isinstance(fixture, TaskProblem):
            return fixture
        set_activity("measuring")
        facts = fixture.facts
        compiled = self._rules.baselines == "all"
        found = baselines.measure_baselines(
            fixture, self.device_info.device, self._baselines, compiled=compiled
        )
        fixture.note_time(found.eager_us)
        return Reference(
            eager_us=found.eager_us,
            compile_us=found.compile_us,
            max_autotune_us=found.max_autotune_us,
            device=self.device_info.device,
            inputs=describe(facts.inputs),
            outputs=describe(facts.outputs),
            notes=facts.notes,
            judged=fixture.judged,
        )

    def judge(
        self,
        task: Task,
        source: str,
        on_running: Callable[[], None],
        set_activity: Callable[[str], None],
        is_cancelled: Callable[[], bool],
        built: BuildResult | None,
        *,
        profiled: bool,
        written: str,
    ) -> Verdict | TaskProblem:
        """Judge one candidate, which may be `built` already; labels are read off `written`."""
        self._disk.require()
        fixture = self.references.fixture_of(task, set_activity)
        if isinstance(fixture, TaskProblem):
            return fixture
        with ExitStack() as stack:
            made = built or self._build_stage(
                "candidate", source, stack, is_cancelled, task.modules
            )
            self._health.before_candidate()
            begin = self._evaluations(fixture, source, made)
            verdict, table = judge_twice_if_doubtful(
                begin, on_running, set_activity, self._log_line, profiled=profiled
            )
        self._disk.require_for(verdict.verdict, f"{verdict.reason} {verdict.log}")
        if verdict.verdict in ABNORMAL:
            self._health.after_abnormal_end()
        if self._ran_out_of_memory(verdict, built):
            verdict = msgspec.structs.replace(verdict, verdict=Outcome.OUT_OF_MEMORY)
        return msgspec.structs.replace(
            verdict_annotations.with_labels(verdict, written, task.source, table, self._rules),
            device=self.device_info.device.fingerprint,
            sandbox_level=self.zygote.ready.level,
        )

    def _evaluations(
        self, fixture: ReferenceFixture, source: str, made: BuildStage | BuildResult
    ) -> Callable[[BuildResult | None, Sequence[GroupClaim]], Evaluation]:
        """Return what begins a trial: the first builds, unless that was done; later ones do not."""

        def begin(there: BuildResult | None, earlier: Sequence[GroupClaim]) -> Evaluation:
            ready = there or made
            return Evaluation(
                self.zygote,
                fixture,
                self.confinements.limits,
                made.confinement,
                source,
                (lambda _limit_s: ready) if isinstance(ready, BuildResult) else ready.run,
                self.device_info,
                earlier,
            )

        return begin

    def _ran_out_of_memory(self, verdict: Verdict, built: BuildResult | None) -> bool:
        """Whether it was killed for want of memory: here, or where it was built before."""
        if verdict.verdict is not Outcome.CRASHED:
            return False
        return built.ran_out_of_memory if built and built.fault else self.zygote.ran_out_of_memory

    def release(
        self, task: Task, source: str, set_activity: Callable[[str], None]
    ) -> Release | TaskProblem:
        """Check a winner as a drop-in file."""
        fixture = self.references.fixture_of(task)
        if isinstance(fixture, TaskProblem):
            return fixture
        with ExitStack() as stack:

            def building(name: str, text: str) -> BuildStage:
                folder = name.replace(" ", "-")
                return self._build_stage(folder, text, stack, lambda: False, task.modules)

            release = ReleaseStage(self.zygote, fixture, building, set_activity).run(source)
        if any("SIG" in why or "no answer" in why for why in release.failed.values()):
            self._health.after_abnormal_end()
        return release

    def inspect(self, task: Task, source: str) -> dict[str, str]:
        """Return what the maker's tools say of a candidate."""
        fixture = self.references.fixture_of(task)
        if isinstance(fixture, TaskProblem):
            return {}
        with ExitStack() as stack:

            def fresh() -> Confinement:
                stage = self._build_stage("tool", source, stack, lambda: False, task.modules)
                stage.run(self.confinements.limits.build_s)
                return stage.confinement

            return inspection.inspect_candidate(self.zygote, fixture, source, fresh)

    def _build_stage(
        self,
        name: str,
        source: str,
        stack: ExitStack,
        unwanted: Callable[[], bool],
        modules: Mapping[str, str],
    ) -> BuildStage:
        """Return what builds a candidate in a fresh folder, which goes with `stack`."""
        folder = self.scratch.fresh(name)
        stack.callback(self.scratch.remove, folder)
        return self._builder.build_stage(
            source, self.zygote, folder, self.device_info.arch, unwanted, modules
        )
