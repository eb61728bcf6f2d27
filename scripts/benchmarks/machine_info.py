"""The machine of a measurement, and the arithmetic of its figures."""

from __future__ import annotations

import os
import platform
import time
from collections import Counter
from pathlib import Path

import pynvml


def machine() -> str:
    """Return one line: processor, cores, memory, system, Python, cards."""
    cpu = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{cpu}, {os.cpu_count()} cores, {gib:.0f} GiB, Linux {platform.release().split('-')[0]},"
        f" Python {platform.python_version()}{cards()}"
    )


def cards() -> str:
    """Return the names of the machine's cards and their driver, after a comma; "" without any."""
    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
        found = [pynvml.nvmlDeviceGetHandleByIndex(number) for number in range(count)]
        names = Counter(str(pynvml.nvmlDeviceGetName(handle)) for handle in found)
        driver = pynvml.nvmlSystemGetDriverVersion()
    except pynvml.NVMLError:
        return ""
    if not names:
        return ""
    shown = " and ".join(f"{many} {name}" if many > 1 else name for name, many in names.items())
    return f", {shown}, driver {driver}"


def disk(folder: Path, times: int = 200) -> tuple[float, float]:
    """Return (p50, p99) in ms of making 20 KB durable in `folder`: the least time of a commit."""
    path = folder / "durable"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    times_ms = []
    try:
        for number in range(times):
            begun_at = time.perf_counter()
            os.pwrite(descriptor, b"." * 20_000, number * 20_000)
            os.fdatasync(descriptor)
            times_ms.append((time.perf_counter() - begun_at) * 1000)
    finally:
        os.close(descriptor)
        path.unlink()
    return percentile(times_ms, 50), percentile(times_ms, 99)


def percentile(values: list[float], percent: float) -> float:
    """Return the percentile of `values` (nearest rank)."""
    ordered = sorted(values)
    rank = max(0, min(len(ordered) - 1, round(percent / 100 * len(ordered)) - 1))
    return ordered[rank]
