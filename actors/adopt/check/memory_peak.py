"""Memory of the card, or of the process on a CPU: the highest of a pass, and what is free."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import torch

CLEAR = Path("/proc/self/clear_refs")
RESET_PEAK = "5"  # proc(5): resets VmHWM


def peak_of(run: Callable[[], None], device: torch.device) -> int:
    """Return the highest number of bytes in use while `run` runs; 0 where it can't be measured."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        run()
        return int(torch.cuda.max_memory_allocated(device))
    try:
        CLEAR.write_text(RESET_PEAK)
        run()
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) << 10 if found else 0


def free_bytes(device: torch.device) -> int:
    """Return how many bytes can still be taken; where that is not known, very many."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        found = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    except OSError:
        return 1 << 60
    return int(found[1]) << 10 if found else 1 << 60
