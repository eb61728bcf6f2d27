"""What a request asks, less what a machine measured: how a replay knows a request again.

Pure.  A request shows times, profiles, logs and the machine's facts.  When the same run is made
again these are a little different every time, and the question is the same.
"""

from __future__ import annotations

import re

# As `prompting` and the templates in prompts/ write them.
_TIMES = re.compile(r"^Time of PyTorch itself, a call: .*$", re.MULTILINE)
_MACHINE = re.compile(r"(^## The machine\n).*?(?=^# Where we stand)", re.MULTILINE | re.DOTALL)
_JUDGED = re.compile(
    r"^\*\*Compiler observation\*\*\n+(?P<observation>[^\n]*).*?"
    r"^\*\*Result\*\*\n+(?P<word>[^\n:,]*).*?"
    r"(?=^# Earlier attempts|^## Attempt \d+: node|^# Your part|\Z)",
    re.MULTILINE | re.DOTALL,
)


def unmeasured(request: str) -> str:
    """Return a request's text without figures, logs and facts; verdicts stay, as one word each."""
    text = _TIMES.sub("Time of PyTorch itself", request, count=1)
    text = _MACHINE.sub(r"\1", text, count=1)
    return _JUDGED.sub(r"\g<observation>\n\g<word>\n\n", text)


def first_difference(one: str, other: str) -> tuple[int, str, str]:
    """Return the number of the first line in which two texts differ, and both lines."""
    mine, theirs = one.split("\n"), other.split("\n")
    shorter = min(len(mine), len(theirs))
    place = next((n for n in range(shorter) if mine[n] != theirs[n]), shorter)
    return place + 1, "".join(mine[place : place + 1]), "".join(theirs[place : place + 1])
