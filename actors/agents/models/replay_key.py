"""A request without what a machine measured: the key by which a replay finds a stored reply.

Pure.  A request shows times, profiles, logs and the machine's facts.  When the same run is made
again these differ a little every time, and the question is the same.  So does the ledger: which
attempts had ended when a request was made, and which of them was the fastest.
"""

from __future__ import annotations

import re

# The texts that `prompting` and the templates in prompts/ write.
_REFERENCE_TIMES = "\nTime of PyTorch itself, a call:"
_MACHINE_HEADING = "## The machine\n"
_OBSERVATION = re.compile(
    r"(?:^\*\*Compiler observation\*\*\n+(?P<observation>[^\n]*).*?)?"
    r"^\*\*Result\*\*\n+(?P<word>[^\n:,]*).*?"
    r"(?=^# Earlier attempts|^## Attempt \d+: node|^# All attempts so far|^## The fastest so far"
    r"|^# Your part|\Z)",
    re.MULTILINE | re.DOTALL,
)
_LEDGER = re.compile(
    r"^(?:# All attempts so far$|## The fastest so far: node \d+$).*?"
    r"(?=^# Advice from a person|^# Your part|\Z)",
    re.MULTILINE | re.DOTALL,
)
_JUDGED_ANSWER = re.compile(
    r"^(?P<heading># The judge tried this answer: [^\n]*).*?(?=^# Mend it$)",
    re.MULTILINE | re.DOTALL,
)


def without_measurements(request: str) -> str:
    """Return a request's text without figures, logs and facts; outcomes stay, one word each."""
    stable, heading, varying = request.partition("\n# Where we stand")
    varying = _LEDGER.sub("", varying)
    varying = _JUDGED_ANSWER.sub(r"\g<heading>\n\n", varying)
    varying = _OBSERVATION.sub(r"\g<observation>\n\g<word>\n\n", varying)
    return _without_figures(stable) + heading + varying


def _without_figures(stable: str) -> str:
    """Return the part that a task's requests share, without its times and the machine's facts."""
    # The last match is the task's: the example before it may hold the same text.
    head, times, rest = stable.rpartition(_REFERENCE_TIMES)
    notes, machine, _ = rest.partition("\n")[2].rpartition(_MACHINE_HEADING)
    return head + times + notes + machine if times and machine else stable


def first_differing_line(one: str, other: str) -> tuple[int, str, str]:
    """Return the number of the first line that differs between two texts, and both lines."""
    mine, theirs = one.split("\n"), other.split("\n")
    shorter = min(len(mine), len(theirs))
    place = next((n for n in range(shorter) if mine[n] != theirs[n]), shorter)
    return place + 1, "".join(mine[place : place + 1]), "".join(theirs[place : place + 1])
