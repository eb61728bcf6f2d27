"""Estimates the memory that a task needs, so that it is refused instead of killed later.

The referee asks before it makes a tensor.  Sizes come from torch's meta device, on which tensors
have shapes and no bytes.  A task that does not run there has no estimate and is tried.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import torch

from actors.evaluator.children.task_errors import UnsuitableTaskError
from actors.evaluator.children.tensors.call_arguments import positional_inputs
from actors.evaluator.children.tensors.tensor_bytes import tensors_in
from actors.evaluator.ipc.card_memory import TaskBytes, gib
from protocol.values import DeviceKind

# Measured on a CPU: up to eight copies of inputs, parameters and outputs exist at once (inputs that
# are written while others are compared, two sides, expected outputs, a second draw).
TASK_COPIES = 8
OTHER_BYTES = 1 << 30  # torch itself, in every child
SMALL_TASK_BYTES = 1 << 28  # smaller tasks are not estimated
LONG = 1 << 13  # elements of a dimension: an outer product of such inputs is large
CGROUP_LIMIT_FILES = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current"))


def require_memory(task: ModuleType, device: DeviceKind) -> TaskBytes:
    """Return the bytes of a task's tensors.

    Raise `UnsuitableTaskError` when the task needs more memory than the machine has free.  On a
    card that is the card's.
    """
    sizes = task_bytes(task)
    tensors = sizes.inputs + sizes.outputs + sizes.parameters
    if tensors <= SMALL_TASK_BYTES:
        return sizes
    if device == "cuda":
        refusal = sizes.refusal(*torch.cuda.mem_get_info())
        if refusal:
            raise UnsuitableTaskError(refusal)
        return sizes
    need, free = TASK_COPIES * tensors + OTHER_BYTES, free_bytes()
    if free is not None and need > free:
        raise UnsuitableTaskError(
            f"too large for this machine: its tensors take {gib(tensors)}, judging it about"
            f" {gib(need)}, and {gib(free)} are free"
        )
    return sizes


def task_bytes(task: ModuleType) -> TaskBytes:
    """Return the bytes of a task's tensors; none where there is no estimate.

    Outputs count where inputs and parameters are large, or a dimension of the inputs is: their
    sizes need a call of the module, which takes time on the meta device, too.
    """
    try:
        with torch.device("meta"), torch.no_grad(), without_compiler():
            model = task.Model(*task.get_init_inputs())
            inputs = positional_inputs(task.get_inputs(), task.Model.forward)
            held, parameters = _bytes(inputs), _bytes(list(model.state_dict().values()))
            is_large = held + parameters > SMALL_TASK_BYTES or _longest(inputs) >= LONG
            outputs = _bytes(model(*inputs)) if is_large else 0
    # A task may fail in any way on a device that it was not written for.
    except Exception:  # noqa: BLE001
        return TaskBytes(inputs=0, outputs=0)
    return TaskBytes(inputs=held, outputs=outputs, parameters=parameters)


@contextmanager
def without_compiler() -> Iterator[None]:
    """Keep torch from importing its compiler, which it only tells to leave a function alone.

    That takes 2 s of a processor at the first call on the meta device, and 5 s beside builds.  What
    really compiles fails inside of the block.
    """
    name = "torch._dynamo"
    if name in sys.modules:
        yield
        return
    stand_in = ModuleType(name)
    stand_in.disable = lambda function, *_args, **_options: function  # type: ignore[attr-defined]
    sys.modules[name] = stand_in
    try:
        yield
    finally:
        del sys.modules[name]


def _longest(inputs: object) -> int:
    return max((size for each in tensors_in(inputs) for size in each.shape), default=0)


class PeakMemory:
    """The most bytes that torch allocates on a card from now on; none on a host."""

    def __init__(self, device: DeviceKind) -> None:
        self._device = device
        self._before = 0
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
            self._before = torch.cuda.memory_allocated()

    def bytes(self) -> int:
        """Return the largest increase so far."""
        if self._device == "cpu":
            return 0
        return torch.cuda.max_memory_allocated() - self._before


def free_card_bytes() -> int:
    """Return the bytes of the card that no other process has."""
    return int(torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved())


def free_bytes() -> int | None:
    """Return the free memory of the machine, or of the control group where that has less."""
    found = []
    for line in _lines(Path("/proc/meminfo")):
        if line.startswith("MemAvailable:"):
            found.append(int(line.split()[1]) * 1024)
    limit, used = ("".join(_lines(path)).strip() for path in CGROUP_LIMIT_FILES)
    if limit.isdigit() and used.isdigit():
        found.append(max(0, int(limit) - int(used)))
    return min(found, default=None)


def _bytes(value: object) -> int:
    return sum(each.numel() * each.element_size() for each in tensors_in(value))


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").splitlines()
    except OSError:
        return []
