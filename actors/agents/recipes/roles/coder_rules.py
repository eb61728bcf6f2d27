"""The rules of coder and solo agent: a change of the node's knobs, as a whole file.

The coder applies the plan's change.  The solo agent chooses a change as the planner does, or
repairs as the debugger does.
"""

from __future__ import annotations

from actors.agents.recipes.roles.debugger_rules import debugger_reply
from actors.agents.recipes.roles.planner_rules import (
    base_candidate,
    best_change,
    change_line,
    compile_inputs_of,
    evidence_text,
)
from actors.agents.recipes.schedule.knobs import read_change, with_change
from protocol.messages import Reflect, Solve, Write
from protocol.values import Outcome


def coder_reply(work: Write) -> str:
    """The coder's reply; for a plan without a `recipe: {...}`, the rule book's own choice.

    Raises `UnsupportedSourceError`, or `ExhaustedError` if it has to choose and nothing is left.
    """
    base, shown = base_candidate(work)
    change = read_change(work.plan.advice)
    knobs = with_change(base, change) if change is not None else None
    if knobs is None:
        source = best_change(work)[0].compiled.source
    else:
        source = shown.source if knobs == base else compile_inputs_of(work).compile(knobs).source
    return f"## Candidate\n\n```python\n{source.rstrip()}\n```\n"


def solo_reply(work: Solve | Reflect) -> str:
    """The solo agent's reply; a node without code of its own has nothing to repair."""
    if not work.node.verdict.is_correct and work.node.verdict.verdict is not Outcome.NO_CANDIDATE:
        return debugger_reply(work)
    choice, shown = best_change(work)
    advice = f"{choice.advice}. {evidence_text(work, shown)} {change_line(choice)}"
    source = choice.compiled.source.rstrip()
    return f"## Advice\n\n{advice}\n\n## Candidate\n\n```python\n{source}\n```\n"
