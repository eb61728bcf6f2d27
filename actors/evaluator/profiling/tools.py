"""The command lines of NVIDIA's tools, and the parsers of their output.  Pure.

ncu gives a dozen numbers of each kernel; compute-sanitizer finds races and accesses out of bounds.
Both start a fresh program in the sandbox, because they can't be put around a fork.  Their output
passes through a process with candidate code, so it is shown to people and decides nothing alone.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from typing import Literal

from actors.evaluator.ipc.logs import clean_log
from protocol.values import Value

Tool = Literal["ncu", "memcheck", "racecheck"]

# ncu's name -> ours
METRICS = {
    "gpu__time_duration.sum": "time",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "memory busy",
    "dram__bytes_read.sum": "read from memory",
    "dram__bytes_write.sum": "written to memory",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": "multiprocessors busy",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "occupancy",
    "sm__maximum_warps_per_active_cycle_pct": "possible occupancy",
    "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active": "tensor cores busy",
    "lts__t_sector_hit_rate.pct": "L2 hits",
    "l1tex__t_sector_hit_rate.pct": "L1 hits",
    "l1tex__data_bank_conflicts_pipe_lsu.sum": "shared memory conflicts",
    "launch__registers_per_thread": "registers a thread",
    "launch__shared_mem_per_block": "shared memory a block",
}
MAX_KERNELS = 4
MAX_CHARS = 1 << 20
NAME_CHARS = 80
LINE_CHARS = 200
MAX_LINES = 8
MAX_LAUNCHES = 8  # ncu measures these, and runs each again for every group of metrics

_SUMMARY = re.compile(r"^=+ (?:Error: |Warning: )?(?:ERROR SUMMARY|RACECHECK SUMMARY): (\d+)")
_LINE = re.compile(r"^=+ ?(.*)$")
_HEAD = re.compile(
    r"Invalid |Misaligned |Error: Race|Race reported|Program hit|"
    r"Leaked |Uninitialized |Barrier error|Unspecified launch failure"
)
_AT = re.compile(r"^\s+(?:at|by thread|and|Access|Address|Write Thread|Read Thread)\b")


def tool_command(tool: Tool, program: Sequence[str], path: str = "") -> list[str]:
    """Return the command line that runs `program` under a tool; `path`: the tool's executable."""
    if tool == "ncu":
        options = ["--csv", "--page", "raw", "--print-units", "base", "--target-processes", "all"]
        counted = ["--launch-count", str(MAX_LAUNCHES), "--metrics", ",".join(METRICS)]
        return [path or "ncu", *options, *counted, *program]
    options = ["--tool", tool, "--print-limit", str(MAX_LINES), "--error-exitcode", "86"]
    if tool == "memcheck":
        options += ["--leak-check", "no"]
    return [path or "compute-sanitizer", *options, *program]


# --- ncu ------------------------------------------------------------------------------------------


def ncu_numbers(csv_text: str) -> dict[str, dict[str, str]]:
    """Return kernel name -> our name of a metric -> printable figure; {} where nothing is found.

    The input is ncu's `--csv --page raw`: the program's own output, a line of names, a line of
    units, and one line for each launch.  Of several launches of a kernel the first counts.
    """
    lines = csv_text[:MAX_CHARS].splitlines()
    start = next((at for at, line in enumerate(lines) if line.startswith('"ID",')), None)
    if start is None:
        return {}
    rows = list(csv.reader(lines[start:]))
    if len(rows) < 3 or "Kernel Name" not in rows[0]:
        return {}
    names, units = rows[0], dict(zip(rows[0], rows[1], strict=False))
    found: dict[str, dict[str, str]] = {}
    for row in rows[2:]:
        cells = dict(zip(names, row, strict=False))
        kernel = clean_log(cells.get("Kernel Name", ""))[:NAME_CHARS]
        if len(row) == len(names) and kernel not in found and len(found) < MAX_KERNELS:
            found[kernel] = _figures(cells, units)
    return found


def _figures(cells: Mapping[str, str], units: Mapping[str, str]) -> dict[str, str]:
    figures = {}
    for metric, name in METRICS.items():
        try:
            value = float(cells.get(metric, "").replace(",", ""))
        except ValueError:
            continue  # "n/a", or a metric that this card does not have
        figures[name] = _printed(value, units.get(metric, ""))
    return figures


def _printed(value: float, unit: str) -> str:
    match unit.split("/")[0]:
        case "%":
            return f"{value:.1f} %"
        case "ns" | "nsecond":
            return f"{value / 1e3:.2f} µs"
        case "byte":
            return f"{value / 2**20:.2f} MiB" if value >= 2**20 else f"{value / 2**10:.1f} KiB"
        case _:
            return f"{value:,.0f}"


# --- compute-sanitizer ----------------------------------------------------------------------------


class SanitizerReport(Value, frozen=True, kw_only=True):
    """The findings of compute-sanitizer; `count` is None where it did not run to its end."""

    count: int | None = None
    lines: tuple[str, ...] = ()

    @property
    def is_clean(self) -> bool:
        return self.count == 0


def sanitizer_summary(text: str) -> SanitizerReport:
    """Return the number of errors that memcheck or racecheck counted, and the first of them."""
    count: int | None = None
    blocks: list[list[str]] = []
    for line in text[:MAX_CHARS].splitlines():
        found = _SUMMARY.match(line)
        if found:
            count = int(found[1][:9])
            continue
        prefixed = _LINE.match(line)
        content = prefixed[1] if prefixed else ""
        if _HEAD.search(content):
            blocks.append([])
        elif not (blocks and _AT.match(content)):
            continue
        blocks[-1].append(clean_log(content)[:LINE_CHARS].rstrip())
    # Each faulty thread reports its place in the source; each place is shown once.
    places: dict[tuple[str, ...], list[str]] = {}
    for block in blocks:
        places.setdefault(tuple(block[:2]), block)
    lines = [line for block in places.values() for line in block]
    return SanitizerReport(count=count, lines=tuple(lines[:MAX_LINES]))
