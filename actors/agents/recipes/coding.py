"""The coder's rules: the plan's change, applied to the node's knobs, as a whole file."""

from __future__ import annotations

from actors.agents.recipes.knobs import changed, read_change
from actors.agents.recipes.planning import begin, choose, scene_of
from protocol.messages import Write


def code(work: Write) -> str:
    """The coder's reply; of a plan in words that only a language model reads, a choice of its own.

    Raises Unreadable, or Exhausted where it would have to choose and nothing is left.
    """
    base, shown = begin(work)
    change = read_change(work.plan.advice)
    knobs = changed(base, change) if change is not None else None
    if knobs is None:
        source = choose(work)[0].made.source
    else:
        source = shown.source if knobs == base else scene_of(work).made(knobs).source
    return f"## Candidate\n\n```python\n{source.rstrip()}\n```\n"
