"""Profiles a call: a table of its kernels, their times, their launches and what they take.

It runs in the runner after everything that counts was measured, and in the referee for the task's
own module.  A candidate shares its process with the profiler and may have written the table itself:
the table is shown to agents and decides nothing except a label.  It is bounded and typed.

`torch.autograd.profiler` is used directly: entering `torch.profiler` imports torch's compilers,
which takes seconds in every process.
"""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Protocol

from msgspec.structs import replace

from actors.evaluator.children import kernel_resources
from actors.evaluator.ipc.profile import Dimensions, KernelProfile, KernelProfileRow
from protocol.facts import OperationTime
from protocol.values import DeviceKind

PROFILED_CALLS = 3
SHORT_CALL_US, LONG_CALL_US = 1e5, 2e6  # a longer call is profiled once, a long one not at all
HOST_CALLS, HOST_S = 9, 0.05  # calls whose return is timed, and for how long at most
MAX_ROWS = 10
MAX_OPERATIONS = 8
NAME_CHARS = 80
MAX_COUNT = 1 << 31
# The profiler's own bookkeeping, and steps that a card does once for each kernel.
NOT_WORK = (
    *("ProfilerStep", "[memory]", "Activity Buffer Request", "Lazy Function Loading"),
    *("Runtime Triggered Module Loading", "Buffer Flush", "Instrumentation", "Resource"),
)
_NOT_JSON = re.compile(r'(":\s*)-?(?:inf|nan)\b')
WORK_OF_CARD = frozenset(["kernel", "gpu_memcpy", "gpu_memset"])  # kinds of events in a trace


class ProfilerEvent(Protocol):
    """The fields of the profiler's `FunctionEventAvg` that this module reads."""

    key: str
    count: int
    self_cpu_time_total: float
    self_device_time_total: float
    device_type: object  # torch's DeviceType: CUDA for a kernel, CPU for its operator


def profile_call(
    call: Callable[[], object], device: DeviceKind, calls: int = PROFILED_CALLS
) -> KernelProfile:
    """Return the profile of `call`, called a few times; imports torch."""
    import torch

    with torch.no_grad():
        host_us = host_time_us(call, device)
        profile = _kernels_of(call, calls) if device == "cuda" else _operators_of(call, calls)
    return replace(profile, host_us=host_us)


def profiled_calls(us: float) -> int:
    """Return how many calls of this length are profiled; 0 where a profile takes too long."""
    return PROFILED_CALLS if us < SHORT_CALL_US else 1 if us < LONG_CALL_US else 0


def host_time_us(call: Callable[[], object], device: DeviceKind) -> float:
    """Return the median time until `call` returns: on a card, until its work is queued."""
    import torch

    times_s: list[float] = []
    until = time.perf_counter() + HOST_S
    while len(times_s) < HOST_CALLS and (not times_s or time.perf_counter() < until):
        began = time.perf_counter()
        call()
        times_s.append(time.perf_counter() - began)
        if device == "cuda":
            torch.cuda.synchronize()
    return round(median(times_s) * 1e6, 2)


def _kernels_of(call: Callable[[], object], calls: int) -> KernelProfile:
    """Return the kernels of a card with their launches, from the profiler's trace."""
    import torch
    from torch.autograd.profiler import profile

    with profile(use_device="cuda", use_kineto=True, use_cpu=False) as recorder:
        for _number in range(calls):
            call()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        recorder.export_chrome_trace(str(path))
        events = trace_events(path.read_bytes().decode("utf-8", "replace"))
    return with_local_memory(profile_of_trace(events, calls), kernel_resources.loaded_resources())


def _operators_of(call: Callable[[], object], calls: int) -> KernelProfile:
    """Return the operators of the call in which they took the least time.

    Whatever operator was interrupted by other programs would seem to be the longest one.
    """
    from torch.autograd.profiler import profile

    found: list[KernelProfile] = []
    for _number in range(calls):
        with profile(use_kineto=True, acc_events=True) as recorder:
            call()
        found.append(profile_of_events(recorder.key_averages(), 1, "cpu"))
    return min(found, key=lambda one: one.whole_us)


def profile_operations(
    call: Callable[[], object], device: DeviceKind, calls: int = PROFILED_CALLS
) -> tuple[KernelProfile, KernelProfile]:
    """Return torch's operators by their own time on the device, and what ran there.

    On a CPU both are the operators.  For a trusted process.
    """
    import torch
    from torch.autograd.profiler import profile

    if device == "cpu":
        operators = _operators_of(call, calls)
        return operators, operators
    with profile(use_device="cuda", use_kineto=True, acc_events=True) as recorder:
        for _number in range(calls):
            call()
        torch.cuda.synchronize()
    events = list(recorder.key_averages())
    own = [event for event in events if not str(event.device_type).endswith("CUDA")]
    return _table(((e.self_device_time_total, e.key, e.count) for e in own), calls), (
        profile_of_events(events, calls, device)
    )


def operation_times(profile: KernelProfile) -> tuple[OperationTime, ...]:
    """Return the longest operators of a profile."""
    return tuple(
        OperationTime(name=row.name, calls=row.calls, us=row.us, share=row.share)
        for row in profile.rows[:MAX_OPERATIONS]
    )


# --- tables ---------------------------------------------------------------------------------------


def profile_of_events(
    events: Iterable[ProfilerEvent], calls: int, device: DeviceKind
) -> KernelProfile:
    """Return the table of a profiler's events in `calls` calls."""
    if device == "cpu":
        return _table(((e.self_cpu_time_total, e.key, e.count) for e in events), calls)
    # An operator repeats its kernel's time.
    kernels = [event for event in events if str(event.device_type).endswith("CUDA")]
    return _table(((e.self_device_time_total, e.key, e.count) for e in kernels), calls)


def trace_events(text: str) -> list[Mapping[str, Any]]:
    """Return the events of a trace in Chrome's format; [] where it is none."""
    try:
        # torch writes a ratio that it can't compute as inf or nan, which JSON does not have.
        trace = json.loads(_NOT_JSON.sub(r"\1null", text), strict=False)
    except ValueError:
        return []
    events = trace.get("traceEvents") if isinstance(trace, dict) else None
    if not isinstance(events, list):
        return []
    return [event for event in events if isinstance(event, dict)]


def profile_of_trace(events: Iterable[Mapping[str, Any]], calls: int) -> KernelProfile:
    """Return the table of the kernels in a trace in Chrome's format, as torch writes it."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for event in events:
        if event.get("cat") in WORK_OF_CARD:
            found.setdefault(str(event.get("name", "")), []).append(event)
    totals = [
        (sum(float(event.get("dur", 0.0)) for event in same), name, len(same))
        for name, same in found.items()
    ]
    table = _table(totals, calls)
    first = {printable_kernel_name(name): same[0].get("args", {}) for name, same in found.items()}
    rows = tuple(_with_launch(row, first.get(row.name, {})) for row in table.rows)
    return replace(table, rows=rows)


def _table(totals: Iterable[tuple[float, str, int]], calls: int) -> KernelProfile:
    """Return the table of (microseconds, name, number) in `calls` calls."""
    kept = [each for each in totals if each[0] > 0 and not each[1].startswith(NOT_WORK)]
    kept.sort(key=lambda each: -each[0])
    whole = sum(us for us, _name, _count in kept)
    rows = tuple(
        KernelProfileRow(
            name=printable_kernel_name(name),
            calls=max(1, round(count / calls)),
            us=round(us / calls, 2),
            share=round(us / whole, 4),
        )
        for us, name, count in kept[:MAX_ROWS]
    )
    return KernelProfile(
        rows=rows,
        more=len(kept) - len(rows),
        whole_us=round(whole / calls, 2),
        launches=round(sum(count for _us, _name, count in kept) / calls),
    )


def _with_launch(row: KernelProfileRow, figures: Mapping[str, Any]) -> KernelProfileRow:
    return replace(
        row,
        grid=_dimensions(figures.get("grid")),
        block=_dimensions(figures.get("block")),
        registers=_whole_number(figures.get("registers per thread")),
        shared_bytes=_whole_number(figures.get("shared memory")),
    )


def _dimensions(value: object) -> Dimensions | None:
    if isinstance(value, Sequence) and len(value) == 3:
        x, y, z = (_whole_number(each) for each in value)
        return (x, y, z) if x is not None and y is not None and z is not None else None
    return None


def _whole_number(value: object) -> int | None:
    return value if isinstance(value, int) and 0 <= value < MAX_COUNT else None


def with_local_memory(
    profile: KernelProfile, resources: Sequence[kernel_resources.KernelResources]
) -> KernelProfile:
    """Return the profile with the local memory of its kernels, as far as it is known."""
    rows = tuple(
        replace(
            row,
            local_bytes=kernel_resources.local_bytes_of(row.name, row.registers, resources),
        )
        for row in profile.rows
    )
    return replace(profile, rows=rows)


def printable_kernel_name(name: str) -> str:
    """Return a kernel's name for people: one bounded line."""
    line = "".join(char if char.isprintable() else " " for char in name[: 4 * NAME_CHARS])
    line = line.removeprefix("void ")
    return line if len(line) <= NAME_CHARS else f"{line[: NAME_CHARS - 1]}…"


# --- from a candidate's process -------------------------------------------------------------------


def sanitized_profile(profile: KernelProfile) -> KernelProfile:
    """Return a profile from a candidate's process, cut to the size that the profiler gives.

    Figures that can't be are left out: they must not keep the verdict from its way.
    """
    rows = tuple(_sanitized_row(row) for row in profile.rows[:MAX_ROWS])
    return KernelProfile(
        rows=rows,
        more=_whole_number(profile.more) or 0,
        whole_us=_possible_us(profile.whole_us) or 0.0,
        launches=_whole_number(profile.launches) or 0,
        host_us=_possible_us(profile.host_us),
    )


def _sanitized_row(row: KernelProfileRow) -> KernelProfileRow:
    return KernelProfileRow(
        name=printable_kernel_name(row.name),
        calls=_whole_number(row.calls) or 0,
        us=_possible_us(row.us) or 0.0,
        share=row.share if 0.0 <= row.share <= 1.0 else 0.0,
        grid=_dimensions(row.grid),
        block=_dimensions(row.block),
        registers=_whole_number(row.registers),
        shared_bytes=_whole_number(row.shared_bytes),
        local_bytes=_whole_number(row.local_bytes),
    )


def _possible_us(us: float | None) -> float | None:
    return us if us is not None and 0.0 <= us < 1e12 else None
