"""The lone agent's rules: the planner's choice and the coder's file in one, or the debugger's."""

from __future__ import annotations

import msgspec

from actors.agents.recipes.planning import choose, situation
from actors.agents.recipes.repairing import repair
from protocol.messages import Reflect, Solve
from protocol.values import Word


def solve(work: Solve | Reflect) -> str:
    """The lone agent's reply; a node without code of its own has nothing to mend."""
    if not work.node.verdict.correct and work.node.verdict.verdict is not Word.NO_CANDIDATE:
        return repair(work)
    choice, shown = choose(work)
    line = f"recipe: {msgspec.json.encode(choice.change).decode()}"
    words = f"{choice.words}. {situation(work, choice, shown)} {line}"
    return (
        f"## Advice\n\n{words}\n\n## Candidate\n\n```python\n{choice.made.source.rstrip()}\n```\n"
    )
