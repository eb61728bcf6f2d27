"""What a task needs of the host's memory, foreseen: refused in a line, not killed half-way.

Asked by the referee before it makes a tensor.  Sizes come from torch's meta device, on which
tensors have shapes and no bytes.  What can't be made there is not foreseen, and is simply tried.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import torch

from actors.evaluator.children import tensors
from actors.evaluator.children.task_errors import UnsuitableTaskError

# Seen on a CPU: inputs, parameters and outputs lie there up to eight times (inputs that are fed
# while others are compared, two sides, what is expected, a second draw).
TASK_COPIES = 8
OTHER_BYTES = 1 << 30  # torch itself, in every child
SMALL_TASK_BYTES = 1 << 28  # of what is small, nothing is foreseen
CGROUP_LIMIT_FILES = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current"))


def require_memory(task: ModuleType) -> None:
    """Raise `UnsuitableTaskError` when the task needs more memory than this machine has free."""
    held = task_bytes(task)
    if held <= SMALL_TASK_BYTES:
        return
    need, free = TASK_COPIES * held + OTHER_BYTES, free_bytes()
    if free is not None and need > free:
        raise UnsuitableTaskError(
            f"too large for this machine: its tensors take {_gib(held)}, judging it about"
            f" {_gib(need)}, and {_gib(free)} are free"
        )


def task_bytes(task: ModuleType) -> int:
    """Return the bytes of a task's inputs, parameters and outputs; 0 where they can't be foreseen.

    Outputs count for large tasks alone: to find them, the module is run, and on the meta device
    that takes time, too.
    """
    try:
        with torch.device("meta"), torch.no_grad():
            model = task.Model(*task.get_init_inputs())
            inputs = list(task.get_inputs())
            held = _bytes(inputs) + _bytes(list(model.state_dict().values()))
            if held > SMALL_TASK_BYTES:
                held += _bytes(model(*inputs))
    # A task may do whatever it likes with a device that it never meets otherwise.
    except Exception:  # noqa: BLE001
        return 0
    return held


def free_bytes() -> int | None:
    """Return what may still be taken: the machine's memory, or less where a group bounds it."""
    found = []
    for line in _lines(Path("/proc/meminfo")):
        if line.startswith("MemAvailable:"):
            found.append(int(line.split()[1]) * 1024)
    bound, taken = ("".join(_lines(path)).strip() for path in CGROUP_LIMIT_FILES)
    if bound.isdigit() and taken.isdigit():
        found.append(max(0, int(bound) - int(taken)))
    return min(found, default=None)


def _bytes(value: object) -> int:
    return sum(each.numel() * each.element_size() for each in tensors.tensors_in(value))


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").splitlines()
    except OSError:
        return []


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
