"""Which crash, or which call without an end, a tool can locate.  Pure."""

from __future__ import annotations

import re
from typing import Literal

from protocol.values import Outcome, Verdict

CrashPlace = Literal["device", "host", "call"]

# What CUDA, torch and Triton say of a kernel that failed.
_DEVICE_FAULT = re.compile(
    r"CUDA error|\bcudaError|CUDA_ERROR_|Triton Error \[CUDA\]|illegal memory access|"
    r"illegal instruction|misaligned address|unspecified launch failure|device-side assert|"
    r"an illegal|hardware stack error|invalid program counter"
)
_NO_FAULT = re.compile(r"out of memory|no kernel image|invalid device function")
_HOST_FAULT = re.compile(r"killed by SIG(SEGV|BUS|ABRT|FPE|ILL)\b")
# The red zones around an output, which say that something was written there, but not where.
_BREACH = re.compile(r"^it writes outside of its output")


def crash_place(verdict: Verdict) -> CrashPlace | None:
    """Return where a candidate that ran has crashed, if a tool can tell more about it.

    "call": it has not crashed, but one of its calls did not end.
    """
    if verdict.verdict is Outcome.TIMED_OUT and verdict.stage == "check":
        return "call"
    if verdict.verdict is Outcome.WRONG:
        return "device" if _BREACH.search(verdict.reason) else None
    if verdict.verdict is not Outcome.CRASHED or verdict.stage not in ("check", "time"):
        return None
    text = f"{verdict.reason}\n{verdict.log}"
    if _DEVICE_FAULT.search(text) and not _NO_FAULT.search(verdict.reason):
        return "device"
    return "host" if _HOST_FAULT.search(text) else None
