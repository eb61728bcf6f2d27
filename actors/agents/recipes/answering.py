"""The rule book's one door."""

from __future__ import annotations

import traceback
from pathlib import Path

from actors.agents.recipes.frontend.symbolic_values import ExhaustedError, UnsupportedSourceError
from actors.agents.recipes.roles.coder_rules import coder_reply
from actors.agents.recipes.roles.debugger_rules import debugger_reply
from actors.agents.recipes.roles.planner_rules import planner_reply
from actors.agents.recipes.roles.solo_rules import solo_reply
from protocol.messages import AgentWork, MakePlan, Reflect, Repair, Solve, Write
from protocol.values import GiveUpScope

BACKENDS = ("cpp", "cuda")
GIVE_UP_HEADINGS: dict[GiveUpScope, str] = {
    "node": "Cannot at this node",
    "task": "Cannot at this task",
}
GIVE_UP_REASONS: dict[GiveUpScope, str] = {
    "node": "every single change of this candidate leads to one that was tried",
    "task": "every candidate that its rules lead to was tried",
}


def answer(work: AgentWork) -> str:
    """The reply to a planner's, coder's, debugger's or lone agent's work: a pure function of it.

    A refusal says whether it is about this node or about the task: asked again, it would be the
    same.
    """
    if work.task.backend not in BACKENDS:
        return refusal("task", f"it writes C++ and CUDA, not {work.task.backend}")
    # A failed node is mended whatever the task: the plain module is always there.
    scope: GiveUpScope = "node" if isinstance(work, Repair) else "task"
    try:
        return reply_by_role(work)
    except UnsupportedSourceError as problem:
        return refusal(scope, str(problem))
    except ExhaustedError as end:
        return refusal(end.scope, f"nothing is left to try: {GIVE_UP_REASONS[end.scope]}")
    # Any Python text may be a task.  A fault of the rules must not end the process: it would be
    # asked the same again, and fail again, until the run gives up without a word on why.
    except Exception as fault:  # noqa: BLE001
        return refusal(
            scope, f"a fault of the rule book's own, please report it: {error_location(fault)}"
        )


def reply_by_role(work: AgentWork) -> str:
    match work:
        case MakePlan():
            return planner_reply(work)
        case Write():
            return coder_reply(work)
        case Repair():
            return debugger_reply(work)
        case Solve() | Reflect():
            return solo_reply(work)


def refusal(scope: GiveUpScope, why: str) -> str:
    return f"## {GIVE_UP_HEADINGS[scope]}\n\nThe rule book can't go on: {why}.\n"


def error_location(fault: Exception) -> str:
    """An exception in one line, with the place in our code."""
    last = traceback.extract_tb(fault.__traceback__)[-1]
    words = " ".join(f"{type(fault).__name__}: {fault}".split())[:200]
    return f"{words} ({Path(last.filename).name}, line {last.lineno})"
