"""The kernels of a candidate's call as lines of text, for `fact_lines.py`.  Pure."""

from __future__ import annotations

from collections.abc import Iterator

from protocol.facts import KernelFacts, VerdictFacts
from protocol.figure_text import bytes_text, dimensions_text, kernel_name, us

MAX_KERNELS = 6
MIN_KERNEL_SHARE = 0.02  # of the device's time: a shorter kernel is not named
MIN_RESOURCES_SHARE = 0.05  # of the device's time: of a shorter kernel only its time is told


def kernel_lines(facts: VerdictFacts) -> Iterator[str]:
    """Yield what each kernel takes; the sentences of a profile tell more of the longest one."""
    if not facts.kernels:
        return
    if len(facts.kernels) == 1 and not facts.more_kernels and facts.launches == 1:
        yield _only_kernel_line(facts, facts.kernels[0])
        return
    yield "Kernels, by torch's profiler (one input, which caches may hold):"
    told = [one for one in facts.kernels if one.share is None or one.share >= MIN_KERNEL_SHARE]
    for number, kernel in enumerate(told[:MAX_KERNELS]):
        parts = [*_kernel_times(kernel)]
        if number or not facts.profile_sentences:
            parts += _kernel_resources(kernel)
        elif kernel.local_bytes is not None:
            parts.append(_spills(kernel.local_bytes))
        yield f"- {kernel_name(kernel.name)}: {', '.join(parts)}"
    more = facts.more_kernels + len(facts.kernels) - len(told[:MAX_KERNELS])
    if more:
        yield f"- and {more} more"


def _only_kernel_line(facts: VerdictFacts, kernel: KernelFacts) -> str:
    """Return what the only kernel takes: its time is that of the device, in the line above."""
    parts = [] if facts.device_us is not None else [*_kernel_times(kernel)]
    if not facts.profile_sentences:
        parts += _kernel_resources(kernel)
    elif kernel.local_bytes is not None:
        parts.append(_spills(kernel.local_bytes))
    return f"Its kernel, {kernel_name(kernel.name)}{': ' if parts else ''}{', '.join(parts)}."


def _kernel_times(kernel: KernelFacts) -> Iterator[str]:
    yield f"{kernel.launches} a call" if kernel.launches != 1 else "once a call"
    if kernel.us is not None:
        share = f" ({kernel.share:.0%})" if kernel.share is not None else ""
        yield f"{us(kernel.us)}{share}"


def _spills(local_bytes: int) -> str:
    local = f"{local_bytes} B of local memory a thread: spills or local arrays"
    return local if local_bytes else "no spills"


def _kernel_resources(kernel: KernelFacts) -> Iterator[str]:
    if kernel.share is not None and kernel.share < MIN_RESOURCES_SHARE:
        return
    if kernel.grid is not None and kernel.block is not None:
        yield f"grid {dimensions_text(kernel.grid)}, block {dimensions_text(kernel.block)}"
    if kernel.registers is not None:
        yield f"{kernel.registers} registers"
    if kernel.local_bytes is not None:
        yield _spills(kernel.local_bytes)
    if kernel.shared_bytes:
        yield f"{bytes_text(kernel.shared_bytes)} of shared memory"
    if kernel.occupancy is not None:
        limit = f" by {kernel.occupancy_limit}" if kernel.occupancy_limit else ""
        yield f"occupancy at most {kernel.occupancy:.0%}{limit}"
    if kernel.waves is not None:
        few = ": blocks for only a part of the multiprocessors' room" if kernel.waves < 1 else ""
        waves = f"{kernel.waves:.0f}" if kernel.waves >= 10 else f"{kernel.waves:.2g}"
        yield f"{waves} {'wave' if kernel.waves == 1 else 'waves'}{few}"
