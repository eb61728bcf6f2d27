"""Runs a candidate under tools: ncu's metrics, bad accesses, races, where it crashed or stalled.

A tool takes seconds, so a candidate gets one where it pays: the winners, contenders, and one that
crashed.  Tools are run at sandbox level 3 only, since they talk to the program over 127.0.0.1 and
need a network of their own for that.  Nothing that a tool reports changes a verdict, except
memcheck's errors of a winner.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping

from actors.evaluator.ipc.logs import clean_log
from actors.evaluator.ipc.orders import Confinement
from actors.evaluator.ipc.tool_process import Tool
from actors.evaluator.profiling.compiled_source import compiled_line
from actors.evaluator.profiling.fault_report import (
    FaultReport,
    fault_location,
    is_located,
    read_address_sanitizer,
    read_device_assertion,
    read_sanitizer,
)
from actors.evaluator.profiling.kernel_bound import unit_shares
from actors.evaluator.profiling.ncu_report import (
    is_not_permitted,
    longest_kernels,
    metric_table,
    read_report,
    refusal,
)
from actors.evaluator.profiling.profile_sentences import profile_sentences, sources_of
from actors.evaluator.profiling.sentence import ProfileContext
from actors.evaluator.profiling.stalled_call import is_stack_written, read_stalled_call
from actors.evaluator.profiling.tool_commands import EXECUTABLES, ncu_filter, tool_command
from actors.evaluator.profiling.tool_run import LIMIT_S, ToolRun, run_tool, run_watched
from actors.evaluator.reference.fixture import ReferenceFixture
from actors.evaluator.sandbox.zygote_client import ZygoteClient
from protocol.facts import UnitShare
from protocol.values import Value

WINNER_S = 60.0  # of all tools of a winner: none starts after it
WINNER_TOOL_S = 60.0
PROFILE_S = 30.0  # about 7 on a machine that is not busy
STALL_S = 20.0  # about 6 on a machine that is not busy, most of them to see that a call stalls
HOST_S = 30.0  # a host's processors may be busy; about 5 if they are not
LAST_CHARS = 200  # of what a tool wrote that gave no report
# Why a candidate has no profile.  What ncu says is its program's text, too, so it is not repeated.
NOT_USABLE = "ncu may not be used on this machine"
MEASURED_NOTHING, FAILED = "ncu saw no kernel", "the candidate failed under ncu"
TOO_LONG = f"ncu took longer than {PROFILE_S:.0f} s"
CHECKS: tuple[Tool, ...] = ("memcheck", "racecheck")

Fresh = Callable[[], Confinement]  # makes a build of the candidate in a folder of its own


class Profile(Value, frozen=True, kw_only=True):
    """What ncu told of a candidate."""

    sentences: tuple[str, ...] = ()
    table: str = ""  # the raw figures, or why there are none
    seconds: float = 0.0
    unit_shares: tuple[UnitShare, ...] = ()  # of the longest kernel
    why_none: str = ""  # in a few words, for models; "" where there is one, or no ncu


class Inspector:
    """The tools of one device; remembers which of them can't be used here."""

    def __init__(self, zygote: ZygoteClient) -> None:
        self._zygote = zygote
        self._refused: dict[Tool, str] = {}

    def profile(
        self,
        fixture: ReferenceFixture,
        source: str,
        confinement: Confinement,
        context: ProfileContext,
    ) -> Profile:
        """Return what ncu measures of one call of the candidate, as sentences and as a table."""
        why_not = self._why_not("ncu")
        if why_not is not None:
            return Profile(table=why_not, why_none=why_not and NOT_USABLE)
        chosen = longest_kernels(context.kernels, context.launches)
        command = tuple(tool_command("ncu", ncu_filter(chosen)))
        ran = run_tool(self._zygote, fixture, source, confinement, "ncu", command, PROFILE_S)
        call = read_report(ran.text, is_chosen=bool(chosen))
        if not call.kernels:
            reason = refusal(ran.text) or _why_no_report(ran, "it measured no kernel")
            why_none = FAILED if ran.failed else MEASURED_NOTHING
            why_none = why_none if ran.is_finished else TOO_LONG
            if is_not_permitted(ran.text):
                self._refused["ncu"], why_none = f"not run: {reason}", NOT_USABLE
            table = f"no figures: {reason}"
            return Profile(table=table, seconds=ran.seconds, why_none=why_none)
        sentences = profile_sentences(call, context)
        return Profile(
            sentences=tuple(sentence.text for sentence in sentences),
            table=f"{sources_of(sentences)}\n{metric_table(call)}",
            seconds=ran.seconds,
            unit_shares=unit_shares(call.kernels[0].metrics, context.copy_gb_s),
        )

    def check_winner(self, fixture: ReferenceFixture, source: str, fresh: Fresh) -> dict[str, str]:
        """Return memcheck's and racecheck's findings of a winner, as text for people."""
        found: dict[str, str] = {}
        until = time.monotonic() + WINNER_S
        for tool in CHECKS:
            why_not = self._why_not(tool)
            if why_not == "":
                continue
            if why_not is None and time.monotonic() > until:
                why_not = f"not run: the tools before it took {WINNER_S:.0f} s"
            if why_not is not None:
                found[tool] = why_not
                continue
            ran = self._run(tool, fixture, source, fresh(), WINNER_TOOL_S)
            found[tool] = _errors(ran)
        return found

    def locate_fault(
        self, fixture: ReferenceFixture, source: str, confinement: Confinement, log: str = ""
    ) -> str:
        """Return where the candidate's code on the GPU fails, in one line; "" if not known.

        `log`: what the candidate wrote when it crashed, which has a failed assertion's place.
        """
        assertion = read_device_assertion(log)
        if assertion is not None:
            return _located(assertion, source, confinement)
        if self._why_not("memcheck") is not None:
            return ""
        ran = self._run("memcheck", fixture, source, confinement, LIMIT_S, is_located)
        report = read_sanitizer(ran.text)
        # An error of the CUDA API says less than the access that led to it.
        faults = sorted(report.faults, key=lambda fault: fault.function == "")
        if not faults:
            return ""
        return _located(faults[0], source, confinement)

    def locate_host_fault(
        self,
        fixture: ReferenceFixture,
        source: str,
        confinement: Confinement,
        variables: Mapping[str, str],
    ) -> str:
        """Return where the candidate's C++ code fails, in one line; "" if not known.

        `confinement`: of a build with AddressSanitizer, which `variables` put into the process.
        """
        settings = [f"{name}={value}" for name, value in variables.items()]
        command = tuple(tool_command("asan", settings))
        ran = run_tool(self._zygote, fixture, source, confinement, "asan", command, HOST_S)
        report = read_address_sanitizer(ran.text, confinement.folder)
        # Without a line it says no more than the signal did.
        has_place = report is not None and report.line
        return _located(report, source, confinement) if report and has_place else ""

    def locate_stalled_call(
        self, fixture: ReferenceFixture, source: str, confinement: Confinement
    ) -> str:
        """Return where a call of the candidate is that does not end; "" if not known."""
        ran = run_watched(self._zygote, fixture, source, confinement, STALL_S, is_stack_written)
        report = read_stalled_call(ran.text, on_host=fixture.on_host)
        return _located(report, source, confinement) if report else ""

    def _why_not(self, tool: Tool) -> str | None:
        """Return why a tool can't be used here, "" if it is not installed; None if it can."""
        if shutil.which(EXECUTABLES[tool]) is None:
            return ""
        if not self._zygote.ready.namespaces:
            return "not run: it needs a network namespace of its own (sandbox level 3)"
        return self._refused.get(tool)

    def _run(
        self,
        tool: Tool,
        fixture: ReferenceFixture,
        source: str,
        confinement: Confinement,
        limit_s: float,
        is_enough: Callable[[str], bool] | None = None,
    ) -> ToolRun:
        command = tuple(tool_command(tool))
        return run_tool(
            self._zygote, fixture, source, confinement, tool, command, limit_s, is_enough
        )


def memcheck_errors(found: Mapping[str, str]) -> str:
    """Return memcheck's findings; "" when it found nothing."""
    text = found.get("memcheck", "")
    return text if text[:1].isdigit() and not text.startswith("0 ") else ""


def _located(report: FaultReport, source: str, confinement: Confinement) -> str:
    line = compiled_line(confinement.folder, report.file, report.line)
    return fault_location(report, source, line)


def _errors(ran: ToolRun) -> str:
    report = read_sanitizer(ran.text)
    if report.count is None:
        return _why_no_report(ran, "did not run to its end")
    found = f"{report.count} errors" + "".join(f"; {line}" for line in report.lines)
    return f"{found} ({ran.seconds:.1f} s)"


def _why_no_report(ran: ToolRun, otherwise: str) -> str:
    if not ran.is_finished:
        return f"it was ended after {ran.seconds:.0f} s"
    last = " ".join(clean_log(ran.failed or ran.text).split())[-LAST_CHARS:]
    return f"{otherwise}: {last}" if last else otherwise
