"""Which outputs equal elements decide: in which order those are sorted is not specified.

Equal elements are made different ones, by some roundings, twice: what differs between the two was
decided by them.  All elements grow, so what is compared with a threshold is on the same side of it
both times.  Runs in the trusted referee.
"""

from __future__ import annotations

import torch

from actors.evaluator.children import correctness
from actors.evaluator.children.call_form import module_copy
from actors.evaluator.children.task_module import TaskModule
from actors.evaluator.children.tensors.tensor_bytes import tensors_in
from actors.evaluator.children.tensors.tensor_copies import as_double, clone, map_tensors


def decided_by_ties(task: TaskModule, inputs: list[object], seed: int) -> int:
    """Return how many integers of the outputs equal elements decide; 0 where the task fails.

    In float64, where the module works there: what is only near to something is not changed.
    """
    try:
        pairs = list(zip(*(_outputs(task, inputs, seed) for _number in range(2)), strict=True))
    # A task may refuse what its own get_inputs never gives it, and memory may be short.
    except Exception:  # noqa: BLE001
        return 0
    return sum(
        int((one != other).sum().item()) if one.shape == other.shape else one.numel()
        for one, other in pairs
        if not correctness.is_real(one)
    )


def _outputs(task: TaskModule, inputs: list[object], seed: int) -> list[torch.Tensor]:
    wide = as_double(inputs) if task.has_double else clone(inputs)
    given = [map_tensors(each, _set_apart) for each in wide]
    found = task.double_outputs(given, seed)
    if found is None:
        found = task.eager_outputs(given, seed, module_copy(task.model))
    return list(tensors_in(found))


def _set_apart(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_floating_point() or not tensor.numel() or tensor.element_size() == 1:
        return tensor  # eight bits have no room for it
    most = tensor.abs().nan_to_num(nan=0.0, posinf=0.0).max()
    roundings = correctness.ERROR_FACTOR * torch.finfo(tensor.dtype).eps
    return tensor + roundings * most * torch.rand_like(tensor)
