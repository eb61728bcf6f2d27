"""One candidate's way through the stages: build, import, check, time, and its end.

Each step returns the candidate's fault, or None and the next step follows.  The verdict is made
once, at the end.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Literal

from actors.evaluator import verdict_annotations
from actors.evaluator.build.build_stage import (
    BuildResult,
    CandidateBuild,
    FinishedBuild,
    log_build,
    require_compiler,
)
from actors.evaluator.checking import CorrectnessCheck
from actors.evaluator.children.profiler import profiled_calls, sanitized_profile
from actors.evaluator.devices import roofline
from actors.evaluator.devices.device_info import DeviceInfo
from actors.evaluator.facts.verdict_facts import candidate_facts, fault_facts
from actors.evaluator.fastbuild import may_compile
from actors.evaluator.ipc import logs
from actors.evaluator.ipc.layout_checks import tensor_leaves
from actors.evaluator.ipc.profile import KernelProfile
from actors.evaluator.ipc.runner_orders import (
    CallProfiled,
    FromRunner,
    TakeProfile,
)
from actors.evaluator.reference.fixture import ReferenceFixture
from actors.evaluator.reference.runner_start import FailedStart, start_runner
from actors.evaluator.sandbox import sandbox
from actors.evaluator.sandbox.child_client import ChildClient, ChildFailure
from actors.evaluator.sandbox.child_failures import (
    Accusation,
    CandidateFault,
    fault_from_child,
    wrong_result,
)
from actors.evaluator.sandbox.freezer import ProcessFreezer, freezer_for_new_children
from actors.evaluator.sandbox.stall_detector import StallDetector
from actors.evaluator.sandbox.zygote_client import DeviceMemoryFullError
from actors.evaluator.timing import baselines, trial_timing
from actors.evaluator.timing.paired_benchmark import PairedBenchmark
from actors.evaluator.timing.sides import CandidateProcess
from actors.evaluator.timing.timing_statistics import Timing, against_alone, under_contention
from actors.work_context import EvaluationContext
from protocol.values import Outcome, Seconds, Value, Verdict

EXIT_S = 5.0
PROFILE_S = 10.0  # for the profile of a candidate, which takes a fraction of a second
MAX_SOURCE_BYTES = 1 << 20
Inspected = Literal["no", "crash", "contender", "yes"]
MAX_BYTES_PER_S = 20e12  # more than any processor moves in a second


class EvaluationRequest(Value, frozen=True, kw_only=True):
    """What is evaluated, and how."""

    source: str
    labelled_source: str  # labels are read off this: the agent's file, without a drop-in around it
    built: BuildResult | None = None  # what was built ahead of the turn; it is used once
    best_speedup: float = 0.0  # of the task so far; 0: time the candidate well in any case
    # Whether tools look at it: after a crash only, also as a contender, or in any case.
    inspected: Inspected = "no"
    time_s: float | None = None  # the most seconds of timing; None: the limit's
    # It is checked on one draw and timed for these seconds by its own process, without the
    # reference: enough to choose among variants of one candidate, which can deceive only itself.
    trial_s: float | None = None


class Evaluation:
    """One candidate before the judge, in processes of its own."""

    def __init__(
        self,
        fixture: ReferenceFixture,
        device_info: DeviceInfo,
        request: EvaluationRequest,
        build: CandidateBuild,
        tolerated: frozenset[Accusation] = frozenset(),
    ) -> None:
        """`tolerated`: what the candidate is not rejected for."""
        self._tolerated = tolerated
        self.suspected: Accusation | None = None  # looked for in each group, not by lot
        self.accusation: Accusation | None = None  # what it is rejected for, once it was timed
        self.fixture = fixture
        self._device_info = device_info
        self._request = request
        self._source = request.source
        self._limits = fixture.limits
        self._build = build
        self._built: BuildResult | None = None  # if the candidate compiles something
        self.kernel_profile: KernelProfile | None = None
        self.was_lost_under_profiler = False  # the device is to be checked then
        self.timing: Timing | None = None
        self._trial_us: float | None = None
        self._check: CorrectnessCheck | None = None
        self._benchmark: PairedBenchmark | None = None
        self._missing_parameters: tuple[str, ...] = ()
        self._spent_s: dict[str, float] = {"build": 0.0, "check": 0.0, "time": 0.0}
        self._runner: ChildClient[FromRunner] | None = None
        self._freezer = ProcessFreezer(set())

    def in_new_process(
        self,
        tolerated: frozenset[Accusation] = frozenset(),
        suspected: Accusation | None = None,
    ) -> Evaluation:
        """Return another evaluation of the same build."""
        other = Evaluation(
            self.fixture,
            self._device_info,
            self._request,
            FinishedBuild(self._built) if self._built else self._build,
            tolerated,
        )
        other.suspected = suspected
        return other

    def on_fixture(self, fixture: ReferenceFixture) -> Evaluation:
        """Return another evaluation of the same build, beside another reference."""
        other = self.in_new_process()
        other.fixture = fixture
        return other

    def has_tried(self, accusation: Accusation) -> bool:
        """Whether this process would have been accused of it."""
        return self._benchmark is not None and self._benchmark.has_tried(accusation)

    def run(self, context: EvaluationContext) -> Verdict:
        """Go through the stages; return a verdict for anything that the candidate does."""
        try:
            fault = self._run_build(context) or self._check_and_time(context)
            if fault is not None and fault.is_of_compiler:  # it may compile in a call, too
                require_compiler(self._build.confinement)
        except DeviceMemoryFullError as error:
            if self._runner is None:
                raise
            # There was room without the candidate: the reference was measured on this device.
            need = self.fixture.memory_need
            reason = f"it leaves the reference no memory on the card: {need} ({error})"
            fault = CandidateFault(
                outcome=Outcome.OUT_OF_MEMORY, stage="check", reason=reason[:300]
            )
        finally:
            if self._runner is not None:
                self._runner.kill()
            if self._benchmark is not None:
                self._benchmark.close()
        self.accusation = fault.accusation if fault is not None else None
        return self._verdict(fault)

    def _check_and_time(self, context: EvaluationContext) -> CandidateFault | None:
        context.candidate_running()
        context.set_activity("checking")
        began = time.monotonic()
        stages = self.fixture.zygote.stages
        with stages.stage("start"):
            with freezer_for_new_children(self.fixture.zygote) as self._freezer:
                self._runner = self.fixture.zygote.spawn(
                    "runner", self._build.confinement, FromRunner, trusted=False
                )
            self._runner.stall_detector = StallDetector(
                self._freezer.processes, self.fixture.plain_call_s
            )
            fault = self._start(self._runner)
        with stages.stage("check"):
            fault = fault or self._run_check(self._runner)
        self._spent_s["check"] += time.monotonic() - began
        if fault is not None:
            return fault
        context.log_step(
            "checked",
            rounds=self._check.rounds if self._check else None,
            seconds=round(time.monotonic() - began, 3),
        )
        context.set_activity("timing")
        began = time.monotonic()
        with stages.stage("timing"):
            fault = self._time(self._runner, context)
        self._spent_s["time"] += time.monotonic() - began
        return fault

    def _time(
        self, runner: ChildClient[FromRunner], context: EvaluationContext
    ) -> CandidateFault | None:
        """Time a candidate that is correct, and let its process end."""
        if self._request.trial_s is not None:
            return self._run_trial(runner, self._request.trial_s)
        began = time.monotonic()
        fault = self._run_benchmark(runner)
        if self._benchmark is not None and fault is None:
            self._benchmark.log_end(context, time.monotonic() - began)
        with self.fixture.zygote.stages.stage("end"):
            is_answering = fault is not None or self._profile(runner)
            fault = fault or (self._end(runner) if is_answering else None)
            if fault is None:
                self._compare_with_reference_alone()
        return fault

    # --- stages ------------------------------------------------------------------------------

    def _run_build(self, context: EvaluationContext) -> CandidateFault | None:
        """Have the candidate built, if it may compile something."""
        if len(self._source.encode()) > MAX_SOURCE_BYTES:
            reason = f"the source is larger than {MAX_SOURCE_BYTES >> 10} KiB"
            return CandidateFault(outcome=Outcome.COMPILE_FAILED, stage="import", reason=reason)
        if not may_compile(self._source):
            return None
        context.set_activity("building")
        self._built = built = self._build.run(self._limits.build_s)
        self._spent_s["build"] = built.seconds
        log_build(built, context)
        return built.fault

    def _start(self, runner: ChildClient[FromRunner]) -> CandidateFault | None:
        """Import, construct, load parameters."""
        limits = self._limits
        # A candidate may also compile while it is constructed.
        build_s = limits.build_s if may_compile(self._source) else 0.0
        self.fixture.refresh_buffers()
        loaded = start_runner(
            runner,
            self.fixture.start_orders(self._source),
            import_s=limits.import_s,
            check_s=limits.check_s + build_s,
        )
        if isinstance(loaded, FailedStart):
            return fault_from_child(loaded.answer, loaded.stage, runner.output.text())
        if loaded.misshapen:
            return wrong_result(f"parameter {loaded.misshapen[0]}", "check")
        self._missing_parameters = loaded.missing
        facts = self.fixture.facts
        self.fixture.referee.restore_parameters(
            self._missing_parameters,
            has_changed=bool(facts.updated.items) or not facts.is_repeated,
        )
        return None

    def _run_check(self, runner: ChildClient[FromRunner]) -> CandidateFault | None:
        self._check = CorrectnessCheck(
            self.fixture,
            runner,
            missing_parameters=self._missing_parameters,
            only_one_draw=self._request.trial_s is not None,
        )
        return self._check.run()

    def _run_benchmark(self, runner: ChildClient[FromRunner]) -> CandidateFault | None:
        self._benchmark = PairedBenchmark(
            self.fixture,
            CandidateProcess(runner=runner, freezer=self._freezer),
            self._device_info.sensors,
            floor_us=self._floor_us(),
            best_speedup=self._request.best_speedup,
            time_s=self._request.time_s,
            tolerated=self._tolerated,
            suspected=self.suspected,
        )
        result = self._benchmark.run()
        if isinstance(result, CandidateFault):
            return result
        if not result.busy_groups:  # else its best may be the noise of a busy machine
            self.fixture.note_time(result.reference_us)
        self.timing = under_contention(result, self.fixture.best_us)
        return None

    def _run_trial(self, runner: ChildClient[FromRunner], seconds: float) -> CandidateFault | None:
        """Time calls on the inputs of the check, roughly and with this process's clock.

        A task with cases needs the reference's time of each, too, for one figure of all.
        """
        if math.isinf(self.fixture.best_us) and self.fixture.task.case is not None:
            self.fixture.note_time(baselines.eager_time(self.fixture).us)
        with self._freezer.priority_of_all():  # threads that wait for each other lose time slices
            timed = trial_timing.timed_calls(runner, self._limits.check_s, seconds)
        if isinstance(timed, float):
            self._trial_us = timed
            return None
        return fault_from_child(timed, "time", runner.output.text())

    def _floor_us(self) -> float:
        """Return the least time of moving the outputs; a cheating candidate may read no input."""
        size = sum(leaf.nbytes for leaf in tensor_leaves(self.fixture.facts.outputs))
        floor = roofline.floor_us(size, 0, roofline.device_peak(self._device_info.device))
        return floor or size / MAX_BYTES_PER_S * 1e6

    def _compare_with_reference_alone(self) -> None:
        """Time the reference alone (GPU): kernels of a frozen candidate may have slowed it down."""
        if self.fixture.on_host or self._benchmark is None or self.timing is None:
            return
        alone_us = self._benchmark.alone_us(self.timing.reference_us)
        self.timing = against_alone(self.timing, alone_us)

    def _profile(self, runner: ChildClient[FromRunner]) -> bool:
        """Profile the candidate; return whether its process still answers.

        A failure here changes nothing, for the candidate is judged already: a profiler may break
        what is right without it.
        """
        median_us = self.timing.median_us if self.timing is not None else math.inf
        calls = profiled_calls(median_us)
        if not calls:
            return True
        answer = runner.ask(TakeProfile(slot=0, calls=calls), min(PROFILE_S, self._limits.check_s))
        if isinstance(answer, ChildFailure):
            self.was_lost_under_profiler = True
            return False
        if isinstance(answer[0], CallProfiled):
            self.kernel_profile = sanitized_profile(answer[0].profile)
        return True

    def _end(self, runner: ChildClient[FromRunner]) -> CandidateFault | None:
        """Let the runner end; a fault that comes as late as that is still the candidate's."""
        limit_s = min(EXIT_S, self._limits.check_s)
        failure = runner.dismiss(limit_s)
        if failure.how == "exit" and failure.number == 0:
            return None
        if failure.how == "timed_out":
            reason = f"it did not end within {limit_s:g} s of its last call"
            return CandidateFault(outcome=Outcome.TIMED_OUT, stage="time", reason=reason)
        fault = fault_from_child(failure, "time", runner.output.text())
        return CandidateFault(
            outcome=fault.outcome, stage="time", reason=f"at its end: {fault.reason}", log=fault.log
        )

    # --- the verdict -------------------------------------------------------------------------

    def _verdict(self, fault: CandidateFault | None) -> Verdict:
        seconds = Seconds(**{name: round(spent, 3) for name, spent in self._spent_s.items()})
        folder = self._build.confinement.folder
        folders = [folder, str(Path(folder).parent)]
        if fault is not None:
            return Verdict(
                verdict=fault.outcome,
                reason=logs.one_line(logs.clean_log(fault.reason, folders)),
                stage=fault.stage,
                max_error=fault.max_error if fault.outcome is Outcome.WRONG else None,
                log=logs.clean_log(fault.log, folders),
                facts=fault_facts(fault, self._check.errors if self._check else ()),
                seconds=seconds,
                sandbox_level=sandbox.LEVEL,
            )
        if self._trial_us is not None:
            return self._trial_verdict(self._trial_us, seconds)
        output = self._runner.output.text() if self._runner is not None else ""
        timed = self.timing
        return Verdict(
            verdict=Outcome.CORRECT,
            median_us=timed.median_us if timed else None,
            reference_us=timed.reference_us if timed else None,
            speedup=timed.speedup if timed else None,
            speedup_ci95=timed.ci95 if timed else None,
            max_error=self._check.max_error if self._check else None,
            profile=self._profile_figures(timed),
            groups=timed.shown_groups if timed else None,
            log=logs.clean_log(output, folders, limit=4096),
            facts=candidate_facts(
                self.kernel_profile,
                self._device_info.device,
                timed.median_us if timed else None,
                self._check.errors if self._check else (),
                self._built.remarks if self._built else (),
            ),
            seconds=seconds,
            sandbox_level=sandbox.LEVEL,
        )

    def _trial_verdict(self, median_us: float, seconds: Seconds) -> Verdict:
        reference_us = None if math.isinf(self.fixture.best_us) else self.fixture.best_us
        return Verdict(
            verdict=Outcome.CORRECT,
            median_us=median_us,
            reference_us=reference_us,
            speedup=reference_us / median_us if reference_us is not None else None,
            seconds=seconds,
            sandbox_level=sandbox.LEVEL,
        )

    def _profile_figures(self, timed: Timing | None) -> dict[str, str] | None:
        if timed is None:
            return None
        return verdict_annotations.verdict_figures(
            timed,
            self._benchmark.reading if self._benchmark else None,
            self._check.error_share if self._check else None,
            self.fixture.facts.notes,
            self._benchmark.note if self._benchmark else "",
        )
