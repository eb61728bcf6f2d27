"""recipes: the embedded default model.  It is a rule book, not a language model.

`answer(work)` returns a reply in the format of a language model's, as a pure function of the work:
the task's source, the window, the seed.  It reads the source as syntax (torch is not imported, and
nothing is run), recognises the operations that it has rules for, and writes whole C++ or CUDA
candidates.  Other operations stay in PyTorch; where nothing is left to write, the reply is a
`## Cannot`.
"""

from __future__ import annotations

import traceback
from pathlib import Path

from actors.agents.recipes.frontend.symbolic_values import ExhaustedError, UnsupportedSourceError
from actors.agents.recipes.roles.coder_rules import coder_reply, solo_reply
from actors.agents.recipes.roles.debugger_rules import debugger_reply
from actors.agents.recipes.roles.planner_rules import planner_reply
from protocol.messages import AgentWork, MakePlan, Reflect, Repair, Solve, Write
from protocol.values import GiveUpScope

__all__ = ["answer"]

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
    """The reply to a planner's, coder's, debugger's or solo agent's work: a pure function of it.

    A refusal says whether it is about this node or about the task: a second request would get the
    same one.
    """
    if work.task.backend not in BACKENDS:
        return refusal("task", f"it writes C++ and CUDA, not {work.task.backend}")
    if work.failed is not None:
        return refusal("node", "the same work has the same answer")
    # A failed node of any task can be repaired: the plain module always works.
    scope: GiveUpScope = "node" if isinstance(work, Repair) else "task"
    try:
        return reply_by_role(work)
    except UnsupportedSourceError as problem:
        return refusal(scope, str(problem))
    except ExhaustedError as end:
        return refusal(end.scope, f"nothing is left to try: {GIVE_UP_REASONS[end.scope]}")
    # Any Python text may be a task.  A bug of the rules must not end the process: the new process
    # would get the same work and fail again, and the run would give up without a reason.
    except Exception as bug:  # noqa: BLE001
        return refusal(
            scope, f"a fault of the rule book's own, please report it: {error_location(bug)}"
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


def refusal(scope: GiveUpScope, reason: str) -> str:
    return f"## {GIVE_UP_HEADINGS[scope]}\n\nThe rule book can't go on: {reason}.\n"


def error_location(error: Exception) -> str:
    """An exception in one line, with the place in our code."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(f"{type(error).__name__}: {error}".split())[:200]
    return f"{text} ({Path(last.filename).name}, line {last.lineno})"
