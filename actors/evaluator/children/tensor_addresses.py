"""Where a runner's tensors lie in its memory, for the judge who writes and reads them from outside.

It is asked on the clock, hence the short way for the common output: half a microsecond a call.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import torch

from actors.evaluator.children.tensors import PLAIN_TENSOR_TYPES, is_dense, layout_of, tensors_in
from actors.evaluator.ipc.layout_checks import Layout
from actors.evaluator.ipc.runner_orders import OutputAddresses


def input_addresses(slots: Sequence[object]) -> bytes:
    """Return where each tensor of each slot begins."""
    return array(
        "Q", [tensor.data_ptr() for slot in slots for tensor in tensors_in(slot)]
    ).tobytes()


def output_addresses(outputs: Sequence[object]) -> tuple[list[object], OutputAddresses]:
    """Return the outputs as they are told of, and where they lie.

    What lies scattered, or is not stored as it reads (conjugated, negated), is told of as a copy.
    """
    told: list[object] = []
    numbers: dict[object, int] = {}  # of what was seen before, by all that makes a layout
    layouts: list[Layout] = []
    kinds, places = array("H"), array("Q")
    for given in outputs:
        output, key = given, _key(given)
        number = numbers.get(key) if key is not None else None
        if number is None:
            output = _dense(given)
            number = len(layouts)
            layouts.append(layout_of(output))
            if output is given and key is not None:
                numbers[key] = number
        told.append(output)
        kinds.append(number)
        if type(output) is torch.Tensor:
            places.append(output.data_ptr())
        else:
            places.extend(tensor.data_ptr() for tensor in tensors_in(output))
    said = OutputAddresses(layouts=tuple(layouts), kinds=kinds.tobytes(), places=places.tobytes())
    return told, said


def _key(value: object) -> object:
    """Return what two tensors of the same layout have in common; None for all other values."""
    if type(value) is not torch.Tensor or value.layout is not torch.strided:
        return None
    seen = (value.dtype, value.shape, value.stride(), value.device)
    return (*seen, value.is_conj(), value.is_neg())


def _dense(value: object) -> object:
    """Return a value whose tensors lie dense in memory, copies where they do not."""
    if isinstance(value, dict):
        return {name: _dense(item) for name, item in value.items()}
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        return type(value)(_dense(item) for item in value)
    if type(value) not in PLAIN_TENSOR_TYPES or value.layout is not torch.strided:  # type: ignore[attr-defined]
        return value
    plain: torch.Tensor = value.resolve_conj().resolve_neg()  # type: ignore[attr-defined]
    return plain if is_dense(plain) else plain.contiguous()
