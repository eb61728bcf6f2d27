"""cases.toml beside a task: every layout in which the model called the module, with its weight.

The task's own inputs are the case with `drawn = true`.  Cases with `shapes` are judged, too; the
others are for reading.  The format is in docs/adopt-reference.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from actors.adopt.model.call_layouts import describe_call, tensor_layouts
from actors.adopt.model.call_recorder import KindOfCalls, ModuleCalls

HEADER = """\
# The layouts in which the model called this module. weight: the part of the module's time.
# calls: a step, of all sites. us: a call, in the model. drawn: get_inputs() draws this case.
# shapes, dtypes: this case is judged, too, with inputs of these shapes.
"""


def cases_text(
    name: str,
    calls: ModuleCalls,
    judged: Sequence[KindOfCalls],
    inputs: Sequence[int],
    steps: int,
) -> str:
    """Return the file's text; the most costly case comes first.

    `judged`: the kinds that the task stands for, first the one that it draws.  `inputs`: the
    forward's arguments, as numbers among a call's tensors.
    """
    total = calls.us or 1.0
    lines = [HEADER, f'task = "{name}.py"']
    if judged[0].kind.gradients:
        lines.append("backward = true")
    for number, each in enumerate(sorted(calls.kinds, key=lambda kind: -kind.us)):
        lines += [
            "",
            "[[case]]",
            f'name = "case-{number}"  # {describe_call(each.kind)}',
            f"weight = {each.us / total:.4f}",
            f"calls = {each.calls / steps:g}",
            f"us = {each.call_us:.1f}",
            f"drawn = {str(each is judged[0]).lower()}",
            f"gradients = {str(each.kind.gradients).lower()}",
            f"autocast = {str(bool(each.kind.autocast_dtype)).lower()}",
            f"training = {str(each.kind.training).lower()}",
            *(_judged_lines(each, inputs) if each in judged[1:] else ()),
            f"inputs = [{_inputs(each)}]",
        ]
    if calls.other_calls:
        lines += ["", "[other]  # layouts beyond those that are told apart"]
        lines += [
            f"weight = {calls.other_us / total:.4f}",
            f"calls = {calls.other_calls / steps:g}",
        ]
    return "\n".join(lines) + "\n"


def _judged_lines(each: KindOfCalls, inputs: Sequence[int]) -> list[str]:
    leaves = [leaf for _, leaf in tensor_layouts(each.kind.layout)]
    shapes = [list(leaves[number].shape) for number in inputs]
    dtypes = ", ".join(f'"{leaves[number].dtype}"' for number in inputs)
    return [f"shapes = {shapes}", f"dtypes = [{dtypes}]"]


def _inputs(each: KindOfCalls) -> str:
    words: Sequence[str] = [
        f'{{ place = "{place}", dtype = "{leaf.dtype}", shape = {list(leaf.shape)}'
        + (f", stride = {list(leaf.stride)}" if leaf.stride else "")
        + " }"
        for place, leaf in tensor_layouts(each.kind.layout)
    ]
    return "".join(f"\n  {word}," for word in words) + ("\n" if words else "")
