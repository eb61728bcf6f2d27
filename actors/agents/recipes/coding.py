"""The coder's rules: the plan's change, applied to the node's knobs, as a whole file."""

from __future__ import annotations

from actors.agents.recipes.compose import Made, compose
from actors.agents.recipes.knobs import changed, read_change
from actors.agents.recipes.objects import Unreadable
from actors.agents.recipes.planning import base_knobs, choose
from protocol.messages import Write


def code(work: Write) -> str:
    """The coder's reply."""
    base = base_knobs(work)
    change = read_change(work.plan.advice)
    knobs = changed(base, change) if change is not None else None
    try:
        if knobs is None:  # a plan in words that only a language model reads: choose ourselves
            chosen = choose(work)
            source = (chosen[0].made if chosen else compose_base(work)).source
        else:
            source = compose(
                work.task.source, work.reference.inputs, work.task.backend, knobs
            ).source
    except Unreadable as problem:
        return f"## Cannot\n\nThe rule book can't write this: {problem}.\n"
    return f"## Candidate\n\n```python\n{source.rstrip()}\n```\n"


def compose_base(work: Write) -> Made:
    return compose(work.task.source, work.reference.inputs, work.task.backend, base_knobs(work))
