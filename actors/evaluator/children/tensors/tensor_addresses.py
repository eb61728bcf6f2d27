"""The addresses of a runner's outputs, which trusted processes read from outside.

The judge asks on the clock, so the common output has a short path: half a microsecond a call.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from contextlib import nullcontext

import torch

from actors.evaluator.children.tensors import records
from actors.evaluator.children.tensors.arena import CallPool
from actors.evaluator.children.tensors.tensor_bytes import (
    PLAIN_TENSOR_TYPES,
    is_dense,
    layout_of,
    tensors_in,
)
from actors.evaluator.children.tensors.tensor_copies import clone
from actors.evaluator.ipc.layout_checks import Layout
from actors.evaluator.ipc.runner_orders import OutputAddresses


def output_addresses(
    outputs: Sequence[object], pool: CallPool | None = None
) -> tuple[list[object], OutputAddresses]:
    """Return the outputs with the addresses of their tensors.

    A tensor that is not dense in memory, or is not stored as it reads (conjugated, negated), is
    replaced by a copy.  If one tensor is neither in the pool's arena nor in the slots of the
    inputs, all are copied into the arena.
    """
    with pool.allocating() if pool is not None else nullcontext():
        located, layouts, kinds, places = _uniform(outputs) or _various(outputs)
    if pool is not None:
        if not pool.can_be_read_at(places):
            with pool.allocating():
                located = [clone(output) for output in located]
            places = array("Q", [each.data_ptr() for each in tensors_in(located)])
        pool.reclaim()
        torch.cuda.synchronize()
        pool.reclaim()
    return located, OutputAddresses(
        layouts=tuple(layouts), kinds=kinds.tobytes(), places=places.tobytes()
    )


Located = tuple[list[object], list[Layout], "array[int]", "array[int]"]


def _uniform(outputs: Sequence[object]) -> Located | None:
    """Return where outputs are that are dense tensors of one layout; None for all others."""
    first = outputs[0] if outputs else None
    if (
        type(first) is not torch.Tensor
        or first.layout is not torch.strided
        or _dense(first) is not first
    ):
        return None
    dtype, shape, stride = first.dtype, first.shape, first.stride()
    places = array("Q")
    for output in outputs:
        if (
            type(output) is not torch.Tensor
            or output.dtype is not dtype
            or output.shape != shape
            or output.is_conj()
            or output.is_neg()
            or output.stride() != stride
        ):
            return None
        places.append(output.data_ptr())
    return list(outputs), [layout_of(first)], array("H", bytes(2 * len(outputs))), places


def _various(outputs: Sequence[object]) -> Located:
    """Return where outputs of any kinds are; those that are not dense are copied."""
    located: list[object] = []
    numbers: dict[object, int] = {}  # the number of each layout so far, by `_layout_key`
    layouts: list[Layout] = []
    kinds, places = array("H"), array("Q")
    for given in outputs:
        output, key = given, _layout_key(given)
        number = numbers.get(key) if key is not None else None
        if number is None:
            output = _dense(given)
            number = len(layouts)
            layouts.append(layout_of(output))
            if output is given and key is not None:
                numbers[key] = number
        located.append(output)
        kinds.append(number)
        places.extend(tensor.data_ptr() for tensor in tensors_in(output))
    return located, layouts, kinds, places


def _layout_key(value: object) -> object:
    """Return a key that is equal for tensors of one layout; None for all other values."""
    if type(value) is not torch.Tensor or value.layout is not torch.strided:
        return None
    layout = (value.dtype, value.shape, value.stride(), value.device)
    return (*layout, value.is_conj(), value.is_neg())


def _dense(value: object) -> object:
    """Return a value whose tensors are dense in memory, with copies where they are not."""
    if type(value) in PLAIN_TENSOR_TYPES:  # first: this is on the clock
        tensor: torch.Tensor = value  # type: ignore[assignment]  # one of these types
        if tensor.layout is not torch.strided:
            return tensor
        plain = tensor.resolve_conj().resolve_neg()
        return plain if is_dense(plain) else plain.contiguous()
    if isinstance(value, torch.Tensor):
        return value
    if records.record_kind(value) is not None:
        return records.like(value, map(_dense, records.field_values(value)))
    if isinstance(value, dict):
        return {name: _dense(item) for name, item in value.items()}
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        return type(value)(_dense(item) for item in value)
    return value
