"""The facts of a candidate: its profile beside the device's limits.  Pure.

A profile comes from the candidate's own process.  It is cut before it comes here
(`children/profiler.py` `sanitized_profile`), and nothing in a verdict depends on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import chain

from msgspec.structs import replace

from actors.evaluator.facts.occupancy import (
    MultiprocessorLimits,
    multiprocessor_limits,
    theoretical_occupancy,
)
from actors.evaluator.ipc.profile import KernelProfile, KernelProfileRow
from actors.evaluator.sandbox.child_failures import CandidateFault
from protocol.facts import OWN_CODE, DrawError, KernelFacts, VerdictFacts
from protocol.values import Device

MIN_OWN_SHARE = 0.1  # of a call on a host, outside of torch's operators


def candidate_facts(
    profile: KernelProfile | None,
    device: Device,
    median_us: float | None,
    errors: tuple[DrawError, ...] = (),
    remarks: tuple[str, ...] = (),
) -> VerdictFacts:
    """Return the facts of a correct candidate; `median_us` and `errors` are the judge's own."""
    known = _profiled_facts(profile, device, median_us)
    return replace(known, errors=errors, compiler_remarks=remarks)


def fault_facts(fault: CandidateFault, errors: tuple[DrawError, ...]) -> VerdictFacts | None:
    """Return where a result is wrong, and the errors of what was right before; None: unknown."""
    return VerdictFacts(difference=fault.difference, errors=errors) if fault.difference else None


def worst_errors(groups: Iterable[tuple[DrawError, ...]]) -> tuple[DrawError, ...]:
    """Return the largest error on each kind of inputs, of several checks of one candidate."""
    worst: dict[str, float] = {}
    for error in chain.from_iterable(groups):
        worst[error.inputs] = max(worst.get(error.inputs, 0.0), error.share)
    return tuple(DrawError(inputs=inputs, share=share) for inputs, share in worst.items())


def _profiled_facts(
    profile: KernelProfile | None, device: Device, median_us: float | None
) -> VerdictFacts:
    if profile is None:
        return VerdictFacts(median_us=median_us)
    if device.kind == "cpu":
        return _facts_on_host(profile, median_us)
    limits = multiprocessor_limits(device.facts)
    return VerdictFacts(
        kernels=tuple(_kernel(row, limits) for row in profile.rows),
        more_kernels=profile.more,
        launches=profile.launches or None,
        device_us=profile.whole_us or None,
        host_us=profile.host_us,
        median_us=median_us,
    )


def _facts_on_host(profile: KernelProfile, median_us: float | None) -> VerdictFacts:
    """Return torch's operators as shares of a whole call; the rest is the candidate's own code."""
    # Under the profiler short operators take longer than the whole call does without it.
    whole = max(profile.host_us or 0.0, profile.whole_us)
    if not whole:
        return VerdictFacts(median_us=median_us)
    own_us = whole - profile.whole_us
    kernels = [
        KernelFacts(name=row.name, launches=row.calls, us=row.us, share=min(1.0, row.us / whole))
        for row in profile.rows
    ]
    if own_us >= MIN_OWN_SHARE * whole:
        own = KernelFacts(name=OWN_CODE, us=round(own_us, 2), share=own_us / whole)
        kernels = sorted([own, *kernels], key=lambda kernel: -(kernel.us or 0.0))
    return VerdictFacts(
        kernels=tuple(kernels),
        more_kernels=profile.more,
        host_us=profile.host_us,
        median_us=median_us,
    )


def _kernel(row: KernelProfileRow, limits: MultiprocessorLimits | None) -> KernelFacts:
    found = None
    if limits is not None and row.block is not None and row.registers is not None:
        threads, shared = math.prod(row.block), row.shared_bytes or 0
        found = theoretical_occupancy(threads, row.registers, shared, limits)
    waves = None
    if found is not None and limits is not None and row.grid is not None:
        waves = math.prod(row.grid) / (found.blocks * limits.count)
    return KernelFacts(
        name=row.name,
        launches=row.calls,
        us=row.us,
        share=row.share,
        grid=row.grid,
        block=row.block,
        registers=row.registers,
        local_bytes=row.local_bytes,
        shared_bytes=row.shared_bytes,
        occupancy=found.share if found is not None else None,
        occupancy_limit=found.limit if found is not None else "",
        waves=waves,
    )
