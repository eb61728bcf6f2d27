"""A profile as the runner sends it: the longest kernels of a call, and what they take."""

from __future__ import annotations

from protocol.values import Value

Dimensions = tuple[int, int, int]


class KernelProfileRow(Value, frozen=True, kw_only=True):
    """One kernel (CUDA) or operator (CPU)."""

    name: str
    calls: int  # for each call of the module
    us: float  # for each call of the module, without other kernels that it runs
    share: float  # of the time of all rows, also of those left out
    # Of a kernel's first launch; None on a CPU, or where the profiler does not report it.
    grid: Dimensions | None = None
    block: Dimensions | None = None
    registers: int | None = None  # a thread
    shared_bytes: int | None = None  # a block
    local_bytes: int | None = None  # a thread: spilled registers, local arrays


class KernelProfile(Value, frozen=True, kw_only=True):
    """The table, the longest first."""

    rows: tuple[KernelProfileRow, ...] = ()
    more: int = 0  # rows that are left out
    whole_us: float = 0.0  # for each call of the module, all rows
    launches: int = 0  # for each call of the module, all rows
    host_us: float | None = None  # until a call returns to Python; on a CPU the whole call
