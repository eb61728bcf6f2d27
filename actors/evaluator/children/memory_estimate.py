"""Estimates the host memory that a task needs, so that it is refused instead of killed later.

The referee asks before it makes a tensor.  Sizes come from torch's meta device, on which tensors
have shapes and no bytes.  A task that does not run there has no estimate and is tried.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import torch

from actors.evaluator.children.task_errors import UnsuitableTaskError
from actors.evaluator.children.tensors.call_arguments import positional_inputs
from actors.evaluator.children.tensors.tensor_bytes import tensors_in

# Measured on a CPU: up to eight copies of inputs, parameters and outputs exist at once (inputs that
# are written while others are compared, two sides, expected outputs, a second draw).
TASK_COPIES = 8
OTHER_BYTES = 1 << 30  # torch itself, in every child
SMALL_TASK_BYTES = 1 << 28  # smaller tasks are not estimated
CGROUP_LIMIT_FILES = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current"))


def require_memory(task: ModuleType) -> None:
    """Raise `UnsuitableTaskError` when the task needs more memory than this machine has free."""
    tensors = task_bytes(task)
    if tensors <= SMALL_TASK_BYTES:
        return
    need, free = TASK_COPIES * tensors + OTHER_BYTES, free_bytes()
    if free is not None and need > free:
        raise UnsuitableTaskError(
            f"too large for this machine: its tensors take {_gib(tensors)}, judging it about"
            f" {_gib(need)}, and {_gib(free)} are free"
        )


def task_bytes(task: ModuleType) -> int:
    """Return the bytes of a task's inputs, parameters and outputs; 0 where there is no estimate.

    Outputs count for large tasks only: their sizes need a call of the module, which takes time on
    the meta device, too.
    """
    try:
        with torch.device("meta"), torch.no_grad():
            model = task.Model(*task.get_init_inputs())
            inputs = positional_inputs(task.get_inputs(), task.Model.forward)
            size = _bytes(inputs) + _bytes(list(model.state_dict().values()))
            if size > SMALL_TASK_BYTES:
                size += _bytes(model(*inputs))
    # A task may fail in any way on a device that it was not written for.
    except Exception:  # noqa: BLE001
        return 0
    return size


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


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
