"""A sentence about a profile, and what is known of the call besides its profile."""

from __future__ import annotations

from protocol.values import Value


class Sentence(Value, frozen=True, kw_only=True):
    """One sentence, and the metrics that it was read off."""

    text: str
    metrics: tuple[str, ...] = ()


class ProfileContext(Value, frozen=True, kw_only=True):
    """What is known of the call besides its profile."""

    call_us: float | None = None  # of the module, as the judge measured it
    # Of one call, as torch's profiler counts:
    launches: int | None = None
    device_us: float | None = None  # of all kernels together
    kernels: tuple[str, ...] = ()  # the longest first
    least_bytes: int | None = None  # inputs, parameters and outputs, each moved once
    copy_gb_s: float | None = None  # of a large copy on this device
    cached_read_gb_s: float | None = None  # of reads from its last cache
    next_launch_us: float | None = None  # of each further one of a series of empty kernels
