"""One candidate's way through the stages: build, import, check, time, and its end.

Each step returns the candidate's fault, or None and goes on; the verdict is made once, at the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from actors.evaluator import verdict_annotations
from actors.evaluator.build.stage import BuildResult
from actors.evaluator.checking import CorrectnessCheck
from actors.evaluator.children.profiler import sanitized_profile
from actors.evaluator.devices import roofline
from actors.evaluator.devices.card import DeviceInfo
from actors.evaluator.fastbuild import may_compile
from actors.evaluator.ipc import logs
from actors.evaluator.ipc.layout_checks import tensor_leaves, total_bytes
from actors.evaluator.ipc.orders import CandidateRaised, Confinement, Order
from actors.evaluator.ipc.profile import KernelProfile
from actors.evaluator.ipc.runner_orders import (
    CallProfiled,
    FromRunner,
    ParametersLoaded,
    TakeProfile,
)
from actors.evaluator.reference.fixture import ReferenceFixture
from actors.evaluator.sandbox import sandbox
from actors.evaluator.sandbox.child_client import ChildClient, ChildFailure
from actors.evaluator.sandbox.child_failures import CandidateFault, fault_from_child, wrong_result
from actors.evaluator.sandbox.freezer import ProcessFreezer, freezer_for_new_children
from actors.evaluator.sandbox.zygote_client import DeviceMemoryFullError, ZygoteClient
from actors.evaluator.timing.audit import GroupClaim
from actors.evaluator.timing.paired_benchmark import PairedBenchmark
from actors.evaluator.timing.timing_statistics import Timing, against_alone, against_best
from protocol.settings import Limits
from protocol.values import Outcome, Seconds, Stage, Verdict

EXIT_S = 5.0
MAX_SOURCE_BYTES = 1 << 20
MAX_BYTES_PER_S = 20e12  # more than any processor moves in a second
SUSPICIOUS_SLOWDOWN = 1.3  # what a reference may take beside a candidate, of what it takes alone


class Evaluation:
    """One candidate before the judge."""

    def __init__(
        self,
        zygote: ZygoteClient,
        fixture: ReferenceFixture,
        limits: Limits,
        confinement: Confinement,
        source: str,
        build_it: Callable[[float], BuildResult],
        device_info: DeviceInfo,
        earlier: Sequence[GroupClaim] = (),
    ) -> None:
        """`earlier`: what it claimed when it was tried before."""
        self.zygote = zygote
        self.fixture = fixture
        self.limits = limits
        self.confinement = confinement
        self.source = source
        self._build_it = build_it
        self.built: BuildResult | None = None  # if it compiles something
        self.table: KernelProfile | None = None
        self._device_info = device_info
        self._earlier = earlier
        self._checks: CorrectnessCheck | None = None
        self._benchmark: PairedBenchmark | None = None
        self.timing: Timing | None = None
        self._missing: tuple[str, ...] = ()
        self._spent: dict[str, float] = {"build": 0.0, "check": 0.0, "time": 0.0}
        self._runner: ChildClient[FromRunner] | None = None
        self._freezer = ProcessFreezer(set())

    @property
    def doubted_claims(self) -> Sequence[GroupClaim]:
        """What it claimed, if it may have needed more than that; else nothing."""
        return (
            self._benchmark.claims
            if self._benchmark is not None and self._benchmark.is_doubtful
            else ()
        )

    def run(
        self,
        on_running: Callable[[], None],
        set_activity: Callable[[str], None],
        *,
        profiled: bool = False,
    ) -> Verdict:
        """Go through the stages; whatever the candidate does, return a verdict."""
        try:
            fault = self._build(set_activity) or self._judge(on_running, set_activity, profiled)
        except DeviceMemoryFullError as error:
            if self._runner is None:
                raise
            # Without it there was room: the reference was measured on this card.
            reason = f"it leaves the reference no memory on the card ({error})"
            fault = CandidateFault(
                outcome=Outcome.OUT_OF_MEMORY, stage="check", reason=reason[:300]
            )
        finally:
            if self._runner is not None:
                self._runner.kill()
        return self._verdict(fault)

    def _judge(
        self, on_running: Callable[[], None], set_activity: Callable[[str], None], profiled: bool
    ) -> CandidateFault | None:
        on_running()
        set_activity("checking")
        began = time.monotonic()
        with freezer_for_new_children(self.zygote) as self._freezer:
            self._runner = self.zygote.spawn("runner", self.confinement, FromRunner, trusted=False)
        fault = self._start(self._runner) or self._check(self._runner)
        self._spent["check"] += time.monotonic() - began
        if fault is not None:
            return fault
        set_activity("timing")
        began = time.monotonic()
        fault = self._time(self._runner)
        if fault is None and profiled:
            self._profile(self._runner)
        fault = fault or self._end(self._runner) or self._reference_slowdown()
        self._spent["time"] += time.monotonic() - began
        return fault

    # --- stages ------------------------------------------------------------------------------

    def _build(self, set_activity: Callable[[str], None]) -> CandidateFault | None:
        """Have what the candidate compiles built, where it may compile something."""
        if len(self.source.encode()) > MAX_SOURCE_BYTES:
            reason = f"the source is larger than {MAX_SOURCE_BYTES >> 10} KiB"
            return CandidateFault(outcome=Outcome.COMPILE_FAILED, stage="import", reason=reason)
        if not may_compile(self.source):
            return None
        set_activity("building")
        self.built = built = self._build_it(self.limits.build_s)
        self._spent["build"] = built.seconds
        return built.fault

    def _start(self, runner: ChildClient[FromRunner]) -> CandidateFault | None:
        """Import, construct, load parameters."""
        limits = self.limits
        # A candidate may compile on construction, too.
        late = limits.build_s if may_compile(self.source) else 0.0
        fault = self._ask(
            runner,
            self.fixture.import_order(self.source),
            limits.import_s,
            "import",
        )
        if fault is not None:
            return fault
        self.fixture.refresh_buffers()
        construct, carried = self.fixture.construct_order()
        fault = self._ask(runner, construct, limits.check_s + late, "check", carried)
        if fault is not None:
            return fault
        load, carried = self.fixture.load_order()
        answer = runner.ask(load, limits.check_s, carried)
        if isinstance(answer, ChildFailure) or not isinstance(answer[0], ParametersLoaded):
            return fault_from_child(answer, "check", runner.output.text())
        if answer[0].misshapen:
            return wrong_result(f"parameter {answer[0].misshapen[0]}", "check")
        self._missing = answer[0].missing
        self.fixture.referee.restore_parameters(self._missing)
        return None

    def _ask(
        self,
        runner: ChildClient[FromRunner],
        order: Order,
        seconds: float,
        stage: Stage,
        carried: list[int] | None = None,
    ) -> CandidateFault | None:
        answer = runner.ask(order, seconds, carried or [])
        if isinstance(answer, ChildFailure) or isinstance(answer[0], CandidateRaised):
            return fault_from_child(answer, stage, runner.output.text())
        return None

    def _check(self, runner: ChildClient[FromRunner]) -> CandidateFault | None:
        check = self._checks = CorrectnessCheck(
            self.fixture, runner, call_s=self.limits.check_s, missing=self._missing
        )
        return check.run()

    def _time(self, runner: ChildClient[FromRunner]) -> CandidateFault | None:
        limits = self.limits
        benchmark = PairedBenchmark(
            self.fixture,
            runner,
            self._freezer,
            self._device_info.sensors,
            time_s=limits.time_s,
            call_s=limits.check_s,
            floor_us=self._floor_us(),
            earlier=self._earlier,
        )
        self._benchmark = benchmark
        result = benchmark.run()
        if isinstance(result, CandidateFault):
            return result
        self.fixture.note_time(result.reference_us)
        on_host = self.fixture.on_host
        self.timing = against_best(result, self.fixture.best_us) if on_host else result
        return None

    def _floor_us(self) -> float:
        """Return what moving the outputs alone takes at best; a cheat may well read no input."""
        size = sum(leaf.nbytes for leaf in tensor_leaves(self.fixture.facts.outputs))
        floor = roofline.floor_us(size, 0, roofline.device_peak(self._device_info.device))
        return floor or size / MAX_BYTES_PER_S * 1e6

    def _reference_slowdown(self) -> CandidateFault | None:
        """See that the reference was not held up: kernels run on when their process is stopped."""
        if self.fixture.on_host or self._benchmark is None or self.timing is None:
            return None
        beside = self.timing.reference_us
        alone = self._benchmark.alone_us(beside)
        if beside <= SUSPICIOUS_SLOWDOWN * alone:
            self.timing = against_alone(self.timing, alone)
            return None
        reason = f"beside it the reference takes {beside:.4g} µs a call, alone {alone:.4g} µs"
        return CandidateFault(outcome=Outcome.REJECTED, stage="time", reason=reason)

    def _profile(self, runner: ChildClient[FromRunner]) -> None:
        """Let the profiler look on; a candidate that fails here has been judged already."""
        answer = runner.ask(TakeProfile(slot=0), self.limits.check_s)
        if not isinstance(answer, ChildFailure) and isinstance(answer[0], CallProfiled):
            self.table = sanitized_profile(answer[0].profile)

    def _end(self, runner: ChildClient[FromRunner]) -> CandidateFault | None:
        """Let it leave: a fault that comes as late as that is still its own."""
        patience = min(EXIT_S, self.limits.check_s)
        failure = runner.dismiss(patience)
        if failure.how == "exit" and failure.number == 0:
            return None
        if failure.how == "timed_out":
            reason = f"it did not end within {patience:g} s of its last call"
            return CandidateFault(outcome=Outcome.TIMED_OUT, stage="time", reason=reason)
        fault = fault_from_child(failure, "time", runner.output.text())
        return CandidateFault(
            outcome=fault.outcome, stage="time", reason=f"at its end: {fault.reason}", log=fault.log
        )

    # --- the verdict -------------------------------------------------------------------------

    def _verdict(self, fault: CandidateFault | None) -> Verdict:
        seconds = Seconds(**{name: round(spent, 3) for name, spent in self._spent.items()})
        folders = [self.confinement.folder, str(Path(self.confinement.folder).parent)]
        if fault is not None:
            return Verdict(
                verdict=fault.outcome,
                reason=logs.one_line(logs.clean_log(fault.reason, folders)),
                stage=fault.stage,
                max_error=fault.max_error if fault.outcome is Outcome.WRONG else None,
                log=logs.clean_log(fault.log, folders),
                seconds=seconds,
                sandbox_level=sandbox.LEVEL,
            )
        output = self._runner.output.text() if self._runner is not None else ""
        timed = self.timing
        return Verdict(
            verdict=Outcome.CORRECT,
            median_us=timed.median_us if timed else None,
            reference_us=timed.reference_us if timed else None,
            speedup=timed.speedup if timed else None,
            speedup_ci95=timed.ci95 if timed else None,
            max_error=self._checks.max_error if self._checks else None,
            profile=self._profile_figures(timed),
            log=logs.clean_log(output, folders, limit=4096),
            seconds=seconds,
            sandbox_level=sandbox.LEVEL,
        )

    def _profile_figures(self, timed: Timing | None) -> dict[str, str] | None:
        if timed is None:
            return None
        facts, device = self.fixture.facts, self._device_info.device
        moved = sum(map(total_bytes, (facts.inputs, facts.state, facts.outputs)))
        return verdict_annotations.verdict_figures(
            timed,
            self._benchmark.reading if self._benchmark else None,
            roofline.roofline_figures(moved, 0, timed.median_us, roofline.device_peak(device)),
            self._checks.error_share if self._checks else None,
            facts.notes,
            self.table,
        )
