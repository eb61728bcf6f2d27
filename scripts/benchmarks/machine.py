"""What the figures were measured on, and the figures' own arithmetic."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def machine() -> str:
    """Return one line: processor, cores, memory, system, Python."""
    cpu = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{cpu}, {os.cpu_count()} cores, {gib:.0f} GiB, Linux {platform.release().split('-')[0]},"
        f" Python {platform.python_version()}"
    )


def percentile(values: list[float], percent: float) -> float:
    """Return the value below which `percent` of `values` lie (nearest rank)."""
    ordered = sorted(values)
    rank = max(0, min(len(ordered) - 1, round(percent / 100 * len(ordered)) - 1))
    return ordered[rank]
