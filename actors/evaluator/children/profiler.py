"""Profiles a correct candidate: a table of its kernels and their times, from torch's profiler.

It runs in the runner after everything that counts was measured.  The candidate shares the process
and may have written the table itself, so the table is shown to agents and decides nothing except a
label.  It is bounded and typed, and nothing in it is parsed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from actors.evaluator.ipc.profile import KernelProfile, KernelProfileRow
from protocol.values import DeviceKind

PROFILED_CALLS = 3
MAX_ROWS = 10
NAME_CHARS = 80
# The profiler's own bookkeeping, and steps that a card does once for each kernel.
NOT_WORK = (
    *("ProfilerStep", "[memory]", "Activity Buffer Request", "Lazy Function Loading"),
    *("Runtime Triggered Module Loading", "Buffer Flush", "Instrumentation", "Resource"),
)


class ProfilerEvent(Protocol):
    """The fields of the profiler's `FunctionEventAvg` that this module reads."""

    key: str
    count: int
    self_cpu_time_total: float
    self_device_time_total: float
    device_type: object  # torch's DeviceType: CUDA for a kernel, CPU for its operator


def profile_call(call: Callable[[], object], device: DeviceKind) -> KernelProfile:
    """Return the profile of `call`, called a few times; imports torch."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU]
    if device == "cuda":
        activities.append(ProfilerActivity.CUDA)
    recording: AbstractContextManager[profile] = profile(activities=activities, acc_events=True)
    with torch.no_grad(), recording as recorder:
        for _number in range(PROFILED_CALLS):
            call()
        if device == "cuda":
            torch.cuda.synchronize()
    return profile_of_events(recorder.key_averages(), PROFILED_CALLS, device)


def profile_of_events(
    events: Iterable[ProfilerEvent], calls: int, device: DeviceKind
) -> KernelProfile:
    """Return the table of a profiler's events in `calls` calls."""
    found = []
    for event in events:
        us = event.self_device_time_total if device == "cuda" else event.self_cpu_time_total
        # An operator repeats its kernel's time.
        is_repeated = device == "cuda" and not str(event.device_type).endswith("CUDA")
        if us > 0 and not is_repeated and not event.key.startswith(NOT_WORK):
            found.append((us / calls, event))
    found.sort(key=lambda pair: -pair[0])
    whole = sum(us for us, _event in found)
    rows = tuple(
        KernelProfileRow(
            name=printable_kernel_name(event.key),
            calls=max(1, round(event.count / calls)),
            us=round(us, 2),
            share=round(us / whole, 4),
        )
        for us, event in found[:MAX_ROWS]
    )
    return KernelProfile(rows=rows, more=len(found) - len(rows), whole_us=round(whole, 2))


def printable_kernel_name(name: str) -> str:
    """Return a kernel's name for people: one bounded line."""
    line = "".join(char if char.isprintable() else " " for char in name[: 4 * NAME_CHARS])
    line = line.removeprefix("void ")
    return line if len(line) <= NAME_CHARS else f"{line[: NAME_CHARS - 1]}…"


def sanitized_profile(profile: KernelProfile) -> KernelProfile:
    """Return a profile from a candidate's process, cut to the size that the profiler gives."""
    rows = tuple(
        KernelProfileRow(
            name=printable_kernel_name(row.name), calls=row.calls, us=row.us, share=row.share
        )
        for row in profile.rows[:MAX_ROWS]
    )
    return KernelProfile(rows=rows, more=profile.more, whole_us=profile.whole_us)


def profile_text(profile: KernelProfile) -> str:
    """Return the table as lines for people and models; "" for an empty one."""
    if not profile.rows:
        return ""
    lines = ["   share         µs  calls  kernel"]
    lines += [f"{r.share:8.1%} {r.us:10.2f} {r.calls:6d}  {r.name}" for r in profile.rows]
    if profile.more:
        lines.append(f"and {profile.more} more; all together {profile.whole_us:.2f} µs a call")
    return "\n".join(lines)


def verdict_profile(profile: KernelProfile, figures: Mapping[str, str]) -> dict[str, str]:
    """Return a verdict's `profile`: the figures, then the table."""
    lines = profile_text(profile)
    return {**figures, **({"kernels": lines} if lines else {})}
