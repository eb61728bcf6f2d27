"""A profile as it crosses from the runner: the longest kernels of a call."""

from __future__ import annotations

from protocol.values import Value


class KernelProfileRow(Value, frozen=True, kw_only=True):
    """One kernel (CUDA) or operator (CPU)."""

    name: str
    calls: int  # a call of the module
    us: float  # a call of the module, of its own
    share: float  # of all that is listed and not


class KernelProfile(Value, frozen=True, kw_only=True):
    """The table, the longest first."""

    rows: tuple[KernelProfileRow, ...] = ()
    more: int = 0  # rows that are left out
    whole_us: float = 0.0  # a call of the module, all rows
