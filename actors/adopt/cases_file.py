"""cases.toml beside a task: every layout in which the model called the module, with its weight.

The task's own inputs are the case with `drawn = true`.  The format is in docs/own-model.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from actors.adopt.call_layouts import describe_call, tensor_layouts
from actors.adopt.call_recorder import KindOfCalls, ModuleCalls

HEADER = """\
# The layouts in which the model called this module. weight: the part of the module's time.
# calls: a step, of all sites. us: a call, in the model. drawn: get_inputs() draws this case.
"""


def cases_text(name: str, calls: ModuleCalls, drawn: KindOfCalls, steps: int) -> str:
    """Return the file's text; the most costly case comes first."""
    total = calls.us or 1.0
    lines = [HEADER, f'task = "{name}.py"']
    for number, each in enumerate(sorted(calls.kinds, key=lambda kind: -kind.us)):
        lines += [
            "",
            "[[case]]",
            f'name = "case-{number}"  # {describe_call(each.kind)}',
            f"weight = {each.us / total:.4f}",
            f"calls = {each.calls / steps:g}",
            f"us = {each.call_us:.1f}",
            f"drawn = {str(each is drawn).lower()}",
            f"gradients = {str(each.kind.gradients).lower()}",
            f"autocast = {str(each.kind.autocast).lower()}",
            f"training = {str(each.kind.training).lower()}",
            f"inputs = [{_inputs(each)}]",
        ]
    if calls.other_calls:
        lines += ["", "[other]  # layouts beyond those that are told apart"]
        lines += [
            f"weight = {calls.other_us / total:.4f}",
            f"calls = {calls.other_calls / steps:g}",
        ]
    return "\n".join(lines) + "\n"


def _inputs(each: KindOfCalls) -> str:
    words: Sequence[str] = [
        f'{{ place = "{place}", dtype = "{leaf.dtype}", shape = {list(leaf.shape)}'
        + (f", stride = {list(leaf.stride)}" if leaf.stride else "")
        + " }"
        for place, leaf in tensor_layouts(each.kind.layout)
    ]
    return "".join(f"\n  {word}," for word in words) + ("\n" if words else "")
