"""What is told of one candidate besides its verdict: its profile, or the place of its crash.

It runs after the judgement, in the same turn on the device.  No outcome and no time depends on it.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from actors.evaluator.build.build_stage import BuildStage
from actors.evaluator.evaluation import EvaluationRequest
from actors.evaluator.fastbuild import ADDED_FLAGS_VARIABLE, may_compile
from actors.evaluator.ipc.layout_checks import total_bytes
from actors.evaluator.ipc.orders import Confinement
from actors.evaluator.profiling.crashes import crash_place
from actors.evaluator.profiling.inspection import Inspector, Profile
from actors.evaluator.profiling.sentence import ProfileContext
from actors.evaluator.reference.fixture import ReferenceFixture
from actors.evaluator.sandbox.zygote_client import JudgeUnavailableError
from actors.work_context import EvaluationContext
from protocol.facts import DeviceRates, VerdictFacts
from protocol.settings import JudgeRules
from protocol.values import METRIC_TABLE, Outcome, Verdict

SANITIZER_FLAGS = "-g1 -fsanitize=address -fno-omit-frame-pointer"
WORTH_PROFILING = 0.5  # of the best speed-up: a slower candidate has little to teach
SANITIZED_BUILD_S = 40.0  # about 7 on two cores that are not busy
SANITIZER_OPTIONS = "detect_leaks=0:handle_segv=1:allow_user_segv_handler=0"


class InspectionStage:
    """The inspection of one judged candidate."""

    def __init__(
        self,
        inspector: Inspector,
        fixture: ReferenceFixture,
        request: EvaluationRequest,
        confinement: Confinement,
        make_stage: Callable[[str, str], BuildStage],
        context: EvaluationContext,
        rates: DeviceRates,
        is_device_wanted: Callable[[], bool] = lambda: False,
    ) -> None:
        """`confinement`: of the candidate's build.  `make_stage`: makes another build.

        `is_device_wanted`: whether another candidate waits for the device.
        """
        self._is_device_wanted = is_device_wanted
        self._inspector = inspector
        self._fixture = fixture
        self._request = request
        self._confinement = confinement
        self._make_stage = make_stage
        self._context = context
        self._rates = rates

    def run(self, verdict: Verdict, rules: JudgeRules) -> Verdict:
        """Return the verdict with what the tools tell; as it was where they fail."""
        if rules.profile == "none" or self._request.inspected == "no":
            return verdict
        try:
            if wants_profile(verdict, self._request, rules):
                return self._with_profile(verdict)
            return self._with_location(verdict)
        except JudgeUnavailableError as error:
            # The judgement is done; what starts anew for the next candidate is the machine.
            self._context.log_step("not inspected", why=str(error)[:200])
            return verdict

    def _with_profile(self, verdict: Verdict) -> Verdict:
        if self._fixture.on_host:
            return verdict
        if self._request.inspected == "contender" and self._is_device_wanted():
            # It takes as long as two or three verdicts, and the next contender may have the time.
            why = "another candidate waited for the device"
            self._context.log_step("not profiled", why=why)
            return with_profile(verdict, Profile(why_none=why))
        self._context.set_activity("profiling")
        found = self._inspector.profile(
            self._fixture,
            self._request.source,
            self._confinement,
            profile_context(self._fixture, verdict, self._rates),
        )
        self._context.log_step("profiled", seconds=round(found.seconds, 1))
        return with_profile(verdict, found)

    def _with_location(self, verdict: Verdict) -> Verdict:
        place = crash_place(verdict)
        if place not in ("call", "host" if self._fixture.on_host else "device"):
            return verdict
        self._context.set_activity("locating the crash")
        began = time.monotonic()
        if place == "call":
            location = self._inspector.locate_stalled_call(
                self._fixture, self._request.source, self._confinement
            )
        elif place == "device":
            location = self._inspector.locate_fault(
                self._fixture, self._request.source, self._confinement, verdict.log
            )
        else:
            location = self._locate_on_host()
        seconds = round(time.monotonic() - began, 1)
        self._context.log_step("crash looked at", seconds=seconds, found=bool(location))
        if not location:
            return verdict
        facts = verdict.facts or VerdictFacts()
        located = msgspec.structs.replace(facts, fault_location=location)
        return msgspec.structs.replace(verdict, facts=located)

    def _locate_on_host(self) -> str:
        """Build the candidate with AddressSanitizer and call it once."""
        library = sanitizer_library()
        if not library or not may_compile(self._request.source):
            return ""
        stage = self._make_stage("sanitized", self._request.source)
        flags = {ADDED_FLAGS_VARIABLE: SANITIZER_FLAGS}
        sanitized = stage.with_environment(flags)
        # The builder ends when it imports the library, which needs the sanitizer to be there first.
        fault = sanitized.run(SANITIZED_BUILD_S).fault
        if fault is not None and fault.outcome is Outcome.TIMED_OUT:
            return ""
        variables = {**flags, "LD_PRELOAD": library, "ASAN_OPTIONS": SANITIZER_OPTIONS}
        # The sanitizer reserves address space for all memory; the control group still limits it.
        confinement = msgspec.structs.replace(sanitized.confinement, data_bytes=None)
        return self._inspector.locate_host_fault(
            self._fixture, self._request.source, confinement, variables
        )


def wants_profile(verdict: Verdict, request: EvaluationRequest, rules: JudgeRules) -> bool:
    """Whether a candidate is profiled: a contender, or one that the coordinator asks for.

    A contender is correct, and its interval reaches the best of its task.  Of the others only
    those are profiled that are not far behind.
    """
    if rules.profile != "contenders" or not verdict.is_correct or verdict.speedup is None:
        return False
    if request.inspected == "yes":
        return verdict.speedup >= WORTH_PROFILING * request.best_speedup
    _low, high = verdict.speedup_ci95 or (verdict.speedup, verdict.speedup)
    return request.inspected == "contender" and high >= request.best_speedup


def profile_context(
    fixture: ReferenceFixture, verdict: Verdict, rates: DeviceRates
) -> ProfileContext:
    """Return what is known of a call besides its profile."""
    facts = fixture.facts
    known = verdict.facts or VerdictFacts()
    return ProfileContext(
        call_us=verdict.median_us,
        launches=known.launches,
        device_us=known.device_us,
        kernels=tuple(kernel.name for kernel in known.kernels),
        least_bytes=sum(map(total_bytes, (facts.inputs, facts.state, facts.outputs))),
        copy_gb_s=rates.copy_gb_s,
        cached_read_gb_s=rates.cached_read_gb_s,
        next_launch_us=rates.next_launch_us,
    )


def with_profile(verdict: Verdict, found: Profile) -> Verdict:
    """Return the verdict with a profile's sentences and its table."""
    facts = verdict.facts or VerdictFacts()
    told = msgspec.structs.replace(
        facts,
        profile_sentences=found.sentences,
        no_profile=found.why_none,
        unit_shares=found.unit_shares,
    )
    took = f"({found.seconds:.1f} s)\n" if found.seconds else ""
    table = {METRIC_TABLE: f"{took}{found.table}"} if found.table else {}
    return msgspec.structs.replace(
        verdict, facts=told, profile={**(verdict.profile or {}), **table}
    )


@functools.cache
def sanitizer_library() -> str:
    """Return the path of gcc's AddressSanitizer; "" where there is none."""
    compiler = shutil.which("c++")
    if compiler is None:
        return ""
    command = [compiler, "-print-file-name=libasan.so"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    path = Path(done.stdout.strip())
    return str(path.resolve()) if path.is_absolute() and path.exists() else ""
