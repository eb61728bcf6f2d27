"""The command lines of the tools that a candidate can be run under.  Pure.

Each tool starts a fresh program in the sandbox, because it can't be put around a fork.
"""

from __future__ import annotations

from collections.abc import Sequence

from actors.evaluator.ipc.tool_process import Tool
from actors.evaluator.profiling.fault_report import MAX_LINES
from actors.evaluator.profiling.ncu_metrics import METRICS
from actors.evaluator.profiling.ncu_report import MAX_LAUNCHES

EXECUTABLES: dict[Tool, str] = {
    "ncu": "ncu",
    "memcheck": "compute-sanitizer",
    "racecheck": "compute-sanitizer",
    "asan": "env",
}


def tool_command(tool: Tool, program: Sequence[str] = (), path: str = "") -> list[str]:
    """Return the command line that runs `program` under a tool; `path`: the tool's executable."""
    command = [path or EXECUTABLES[tool]]
    if tool == "ncu":
        # The clocks stay as they are while the judge measures, so times agree with its own.
        command += ["--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none"]
        command += ["--target-processes", "application-only", "--profile-from-start", "off"]
        command += ["--launch-count", str(MAX_LAUNCHES), "--metrics", ",".join(METRICS)]
    elif tool in ("memcheck", "racecheck"):
        command += ["--tool", tool, "--print-limit", str(MAX_LINES), "--show-backtrace", "no"]
        command += ["--error-exitcode", "86"]
        if tool == "memcheck":
            command += ["--leak-check", "no"]
    return [*command, *program]


def ncu_filter(names: Sequence[str]) -> list[str]:
    """Return the options that have ncu measure the kernels with these names only; [] for all."""
    return ["--kernel-name", f"regex:{'|'.join(names)}"] if names else []
