"""The rule book's one door."""

from __future__ import annotations

import traceback
from pathlib import Path

from actors.agents.recipes.coding import code
from actors.agents.recipes.objects import Exhausted, Unreadable
from actors.agents.recipes.planning import plan
from actors.agents.recipes.repairing import repair
from actors.agents.recipes.solving import solve
from protocol.messages import AgentWork, MakePlan, Reflect, Repair, Solve, Write
from protocol.values import Scope

BACKENDS = ("cpp", "cuda")
HEADINGS: dict[Scope, str] = {"node": "Cannot at this node", "task": "Cannot at this task"}
LEFT: dict[Scope, str] = {
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
    scope: Scope = "node" if isinstance(work, Repair) else "task"
    try:
        return reply_to(work)
    except Unreadable as problem:
        return refusal(scope, str(problem))
    except Exhausted as end:
        return refusal(end.scope, f"nothing is left to try: {LEFT[end.scope]}")
    # Any Python text may be a task.  A fault of the rules must not end the process: it would be
    # asked the same again, and fail again, until the run gives up without a word on why.
    except Exception as fault:  # noqa: BLE001
        return refusal(scope, f"a fault of the rule book's own, please report it: {where(fault)}")


def reply_to(work: AgentWork) -> str:
    match work:
        case MakePlan():
            return plan(work)
        case Write():
            return code(work)
        case Repair():
            return repair(work)
        case Solve() | Reflect():
            return solve(work)


def refusal(scope: Scope, why: str) -> str:
    return f"## {HEADINGS[scope]}\n\nThe rule book can't go on: {why}.\n"


def where(fault: Exception) -> str:
    """An exception in one line, with the place in our code."""
    last = traceback.extract_tb(fault.__traceback__)[-1]
    words = " ".join(f"{type(fault).__name__}: {fault}".split())[:200]
    return f"{words} ({Path(last.filename).name}, line {last.lineno})"
