"""Reads ncu's table: `--csv --page raw`.  Pure.

The text passes through a process tree with candidate code, so it is bounded, may be anything, and
decides nothing.
"""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Sequence

from actors.evaluator.ipc.logs import clean_log
from actors.evaluator.profiling.ncu_metrics import (
    DURATION,
    KernelMetrics,
    MeasuredCall,
    MeasuredKernel,
    figures_of,
)
from protocol.figure_text import NAME_CHARS, kernel_name, without_unnamed

MAX_LAUNCHES = 24  # of one call that ncu measures; it runs each again for every group of metrics
MAX_KERNELS = 6  # that are kept, the longest
MAX_CHARS = 1 << 20
MAX_LINE_CHARS = 1 << 15  # a kernel's name can be of any length; a longer row is left out
CHOSEN_KERNELS = 3  # measured of a call that has more launches
MAX_NAME_CHARS = 2000  # of a name that is shortened
TABLE_CHARS = 12_000

# The name of a function without its namespaces, template arguments and parameters.
_BASE_NAME = re.compile(r"(?:\w+::)*(\w+)")
_NO_PERMISSION = "ERR_NVGPUCTRPERM"
_ERROR = re.compile(r"^==ERROR== (.*)$", re.MULTILINE)


def read_report(text: str, *, is_chosen: bool = False) -> MeasuredCall:
    """Return the kernels in ncu's output; none where it has no table.

    The input is the program's own output, a line of names, a line of units, and one line for each
    launch.  `is_chosen`: ncu measured the longest kernels only.
    """
    launches = _launches(text)
    by_kernel: dict[str, list[KernelMetrics]] = defaultdict(list)
    for name, launch in launches:
        by_kernel[name].append(launch)
    kernels = sorted(map(_kernel, by_kernel.values()), key=lambda kernel: -kernel.total_us)
    kept, others = kernels[:MAX_KERNELS], kernels[MAX_KERNELS:]
    return MeasuredCall(
        kernels=tuple(kept),
        launches=len(launches),
        is_cut=is_chosen or len(launches) >= MAX_LAUNCHES,
        is_chosen=is_chosen,
        other_kernels=len(others),
        other_us=sum(kernel.total_us for kernel in others),
    )


def _launches(text: str) -> list[tuple[str, KernelMetrics]]:
    """Return the launches in their order, each with its kernel's whole name."""
    lines = [line for line in text[:MAX_CHARS].splitlines() if len(line) < MAX_LINE_CHARS]
    start = next((at for at, line in enumerate(lines) if line.startswith('"ID",')), None)
    if start is None:
        return []
    try:
        rows = list(csv.reader(lines[start:]))
    except csv.Error:
        return []
    if len(rows) < 3 or "Kernel Name" not in rows[0]:
        return []
    names, units = rows[0], dict(zip(rows[0], rows[1], strict=False))
    found = []
    for row in rows[2:]:
        cells = dict(zip(names, row, strict=False))
        figures = figures_of(cells, units) if len(row) == len(names) else {}
        if figures.get(DURATION):
            name = cells["Kernel Name"]
            found.append((name, KernelMetrics(name=short_kernel_name(name), figures=figures)))
    return found


def _kernel(launches: list[KernelMetrics]) -> MeasuredKernel:
    moved = [launch.dram_bytes for launch in launches]
    known = [each for each in moved if each is not None]
    return MeasuredKernel(
        metrics=max(launches, key=lambda launch: launch.us),
        launches=len(launches),
        total_us=sum(launch.us for launch in launches),
        dram_bytes=sum(known) if len(known) == len(moved) else None,
    )


def short_kernel_name(name: str) -> str:
    """Return a kernel's name without parameters, and without template arguments if it is long."""
    return kernel_name(" ".join(clean_log(name[:MAX_NAME_CHARS]).split()))


def longest_kernels(names: Sequence[str], launches: int | None) -> list[str]:
    """Return the base names of the longest kernels, if a call has too many launches for ncu.

    `names`: of a call's kernels, the longest first; they come from the candidate's process.
    """
    if launches is None or launches <= MAX_LAUNCHES:
        return []
    found = [_BASE_NAME.match(without_unnamed(name)) for name in names[:CHOSEN_KERNELS]]
    return [base[1][:NAME_CHARS] for base in found if base is not None]


def refusal(text: str) -> str:
    """Return why ncu gave no table, in one line; "" where it says nothing."""
    if _NO_PERMISSION in text:
        return (
            "the driver gives hardware counters to the administrator only (ERR_NVGPUCTRPERM); "
            "see https://developer.nvidia.com/ERR_NVGPUCTRPERM"
        )
    found = _ERROR.search(text[:MAX_CHARS])
    return " ".join(clean_log(found[1]).split())[:200] if found else ""


def is_not_permitted(text: str) -> bool:
    """Whether the driver refused the counters, as it will for every candidate."""
    return _NO_PERMISSION in text


def metric_table(call: MeasuredCall) -> str:
    """Return the raw figures as lines of a metric and its value, for people."""
    lines = []
    for kernel in call.kernels:
        times = f"{kernel.launches} × " if kernel.launches > 1 else ""
        lines.append(f"{kernel.metrics.name}: {times}{kernel.total_us:.2f} µs together")
        lines += [
            f"  {metric} {_plain(value)}"
            for metric, value in kernel.metrics.figures.items()
            if value
        ]
    text = "\n".join(lines)
    return text if len(text) <= TABLE_CHARS else f"{text[:TABLE_CHARS]}\n…"


def _plain(value: float) -> str:
    return f"{value:.0f}" if value >= 1e4 or value == int(value) else f"{value:.4g}"
