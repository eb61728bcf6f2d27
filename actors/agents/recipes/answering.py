"""The rule book's one door."""

from __future__ import annotations

from actors.agents.recipes.coding import code
from actors.agents.recipes.planning import plan
from actors.agents.recipes.repairing import repair
from actors.agents.recipes.solving import solve
from protocol.messages import AgentWork, MakePlan, Reflect, Repair, Solve, Write

BACKENDS = ("cpp", "cuda")


def answer(work: AgentWork) -> str:
    """The reply to a planner's, coder's, debugger's or lone agent's work: a pure function of it."""
    if work.task.backend not in BACKENDS:
        return f"## Cannot\n\nThe rule book writes C++ and CUDA, not {work.task.backend}.\n"
    match work:
        case MakePlan():
            return plan(work)
        case Write():
            return code(work)
        case Repair():
            return repair(work)
        case Solve() | Reflect():
            return solve(work)
