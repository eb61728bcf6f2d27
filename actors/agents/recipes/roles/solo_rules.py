"""The lone agent's rules: the planner's choice and the coder's file in one, or the debugger's."""

from __future__ import annotations

import msgspec

from actors.agents.recipes.roles.debugger_rules import debugger_reply
from actors.agents.recipes.roles.planner_rules import best_change, evidence_text
from protocol.messages import Reflect, Solve
from protocol.values import Outcome


def solo_reply(work: Solve | Reflect) -> str:
    """The lone agent's reply; a node without code of its own has nothing to mend."""
    if not work.node.verdict.is_correct and work.node.verdict.verdict is not Outcome.NO_CANDIDATE:
        return debugger_reply(work)
    choice, shown = best_change(work)
    line = f"recipe: {msgspec.json.encode(choice.change).decode()}"
    words = f"{choice.advice}. {evidence_text(work, choice, shown)} {line}"
    return (
        f"## Advice\n\n{words}\n\n## "
        f"Candidate\n\n```python\n{choice.compiled.source.rstrip()}\n```\n"
    )
