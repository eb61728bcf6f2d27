"""A profile as the runner sends it: the longest kernels of a call."""

from __future__ import annotations

from protocol.values import Value


class KernelProfileRow(Value, frozen=True, kw_only=True):
    """One kernel (CUDA) or operator (CPU)."""

    name: str
    calls: int  # for each call of the module
    us: float  # for each call of the module, without other kernels that it runs
    share: float  # of the time of all rows, also of those left out


class KernelProfile(Value, frozen=True, kw_only=True):
    """The table, the longest first."""

    rows: tuple[KernelProfileRow, ...] = ()
    more: int = 0  # rows that are left out
    whole_us: float = 0.0  # for each call of the module, all rows
