"""What the judge and a candidate's process under a tool agree on."""

from __future__ import annotations

from typing import Literal

# NVIDIA's ncu; compute-sanitizer's two checks; gcc's AddressSanitizer, which is a library.
Tool = Literal["ncu", "memcheck", "racecheck", "asan"]

# Tools that report from a process of their own: the candidate's process writes nothing there.
REPORTING_TOOLS: tuple[Tool, ...] = ("ncu", "memcheck", "racecheck")
TOOL_VARIABLE = "STARK_TOOL"  # the tool's name, in the environment
STALLED_S = 4.0  # of a watched call: one that takes longer writes where it is
PROFILED_CALL = 2  # under ncu: calls before it may compile and tune themselves
