"""The coder's rules: the plan's change, applied to the node's knobs, as a whole file."""

from __future__ import annotations

from actors.agents.recipes.roles.planner_rules import base_candidate, best_change, compile_inputs_of
from actors.agents.recipes.schedule.knobs import read_change, with_change
from protocol.messages import Write


def coder_reply(work: Write) -> str:
    """The coder's reply; of a plan in words that only a language model reads, a choice of its own.

    Raises Unreadable, or Exhausted where it would have to choose and nothing is left.
    """
    base, shown = base_candidate(work)
    change = read_change(work.plan.advice)
    knobs = with_change(base, change) if change is not None else None
    if knobs is None:
        source = best_change(work)[0].compiled.source
    else:
        source = shown.source if knobs == base else compile_inputs_of(work).compile(knobs).source
    return f"## Candidate\n\n```python\n{source.rstrip()}\n```\n"
