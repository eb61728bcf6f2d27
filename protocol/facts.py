"""What is known of a task and of a candidate besides the verdict: figures, never a decision.

`Reference.facts` and `Verdict.facts` carry these structs; `protocol/fact_lines.py` turns them into
text for models and people.  A figure that was not measured is None, and nothing is said about it.
Figures of a candidate's kernels come from the candidate's own process: they are bounded, and no
outcome and no reported time depends on them.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from protocol.frozen_struct import Value

# The arithmetic of matrix products, convolutions and attention.
MatrixPrecision = Literal["float64", "float32", "tf32", "bfloat16", "float16", "int8"]

# What a host's profile calls the part of a call in which no operator of torch runs.
OWN_CODE = "outside of torch's operators"


class DeviceRates(Value, frozen=True, kw_only=True):
    """What a device does at best, measured once on this device; medians."""

    copy_gb_s: float | None = None  # bytes read plus bytes written, of a buffer beyond all caches
    cached_copy_gb_s: float | None = None  # likewise, of a buffer in the last cache
    read_gb_s: float | None = None  # bytes read, nothing written, of a buffer beyond all caches
    cached_read_gb_s: float | None = None  # likewise from a card's last cache, past its L1 caches
    shared_read_gb_s: float | None = None  # from shared memory, by all multiprocessors together
    cache_bytes: int = 0  # of the last cache; 0: not known
    launch_us: float | None = None  # one empty kernel, from the call until the device is idle
    next_launch_us: float | None = None  # each further launch of a series
    graph_launch_us: float | None = None  # each launch inside a CUDA graph
    empty_call_us: float | None = None  # a module whose forward does nothing
    # Matrix products, 10^12 operations a second.
    tflops: dict[MatrixPrecision, float] = msgspec.field(default_factory=dict)
    # Instructions alone, of tensor cores and of threads, by type and instruction, likewise.
    instruction_tflops: dict[str, float] = msgspec.field(default_factory=dict)
    # By the blocks of a cluster: how many run at once with one block on a multiprocessor.
    clusters: dict[int, int] = msgspec.field(default_factory=dict)
    threads: int = 0  # of the processor that took part; 0: a card
    # Of a host: float32 multiply-adds of vectors by these threads together, 10^9 operations a
    # second, and the clock of one that is busy.
    fma_gflops: float | None = None
    clock_ghz: float | None = None


class TaskCost(Value, frozen=True, kw_only=True):
    """The bytes and operations of one call of the task's own module."""

    input_bytes: int = 0
    state_bytes: int = 0  # parameters and buffers
    output_bytes: int = 0
    # Multiplications plus additions of matrix products, convolutions and attention.
    flops: dict[MatrixPrecision, float] = msgspec.field(default_factory=dict)
    # Operators with arithmetic that could not be counted, such as recurrent layers.
    uncounted: tuple[str, ...] = ()

    @property
    def total_bytes(self) -> int:
        """The least traffic: everything is moved once."""
        return self.input_bytes + self.state_bytes + self.output_bytes

    @property
    def total_flops(self) -> float:
        return sum(self.flops.values())


class TaskFloor(Value, frozen=True, kw_only=True):
    """The least time of the task's own bytes and operations at measured rates, microseconds."""

    memory_us: float | None = None  # every byte moved once
    cached_us: float | None = None  # likewise from the last cache, where all bytes fit into it
    matrix_us: float | None = None  # the counted operations
    launch_us: float | None = None  # one launch, or one empty call

    @property
    def parts(self) -> dict[str, float]:
        """The known parts by name; bytes that fit into the last cache count from there."""
        bytes_us = self.memory_us if self.cached_us is None else self.cached_us
        named = {"bytes": bytes_us, "operations": self.matrix_us, "launch": self.launch_us}
        return {name: us for name, us in named.items() if us is not None}

    @property
    def us(self) -> float | None:
        """The largest of the parts; None where no part is known."""
        return max(self.parts.values(), default=None)


class OperationTime(Value, frozen=True, kw_only=True):
    """One operator or kernel of a call of the task's own module, without what it calls."""

    name: str
    calls: int  # for each call of the module
    us: float  # likewise
    share: float  # of the time of all of them


class ReferenceFacts(Value, frozen=True, kw_only=True):
    """What is known of a task; measured by the judge's trusted processes."""

    rates: DeviceRates = DeviceRates()
    cost: TaskCost | None = None
    floor: TaskFloor | None = None
    operations: tuple[OperationTime, ...] = ()  # the longest first
    more_operations: int = 0  # that are left out
    device_us: float | None = None  # the device's work in one call
    launches: int | None = None  # of one call
    rule_lines: tuple[str, ...] = ()  # precision, timing and what comes, from the judge's constants


OccupancyLimit = Literal["", "registers", "shared memory", "threads", "blocks"]


class KernelFacts(Value, frozen=True, kw_only=True):
    """One kernel of a candidate, as its own process reports it."""

    name: str
    launches: int = 1  # for each call of the module
    us: float | None = None  # likewise, of all its launches together
    share: float | None = None  # of the time of all kernels
    grid: tuple[int, int, int] | None = None  # of the launch that was seen first
    block: tuple[int, int, int] | None = None
    registers: int | None = None  # a thread
    local_bytes: int | None = None  # local memory a thread: spilled registers, local arrays
    shared_bytes: int | None = None  # a block, static and dynamic
    # Computed by the judge from the figures above and the device's limits.
    occupancy: float | None = None  # theoretical, of the threads that a multiprocessor holds
    occupancy_limit: OccupancyLimit = ""
    waves: float | None = None  # blocks over the blocks that run at the same time


class DrawError(Value, frozen=True, kw_only=True):
    """The largest error on draws of one kind of inputs."""

    inputs: str  # "as given", "scaled", …
    share: float  # of the tolerance


class UnitShare(Value, frozen=True, kw_only=True):
    """How busy a unit of the device is in a candidate's longest kernel, as a profiler measured."""

    unit: str  # "DRAM", "tensor cores", …
    share: float  # of the time, or of the rate that a copy reaches


class VerdictFacts(Value, frozen=True, kw_only=True):
    """What is known of a candidate besides its verdict."""

    kernels: tuple[KernelFacts, ...] = ()  # the longest first; on a host: operators
    more_kernels: int = 0  # that are left out
    launches: int | None = None  # of one call
    device_us: float | None = None  # of all kernels of one call
    host_us: float | None = None  # until one call returns to Python
    median_us: float | None = None  # the judge's own figure, which the lines compare with
    difference: tuple[str, ...] = ()  # of a wrong result: where, how many, which pattern
    profile_sentences: tuple[str, ...] = ()  # read off a profiler's metrics by fixed rules
    no_profile: str = ""  # why a candidate that was to have a profile has none
    fault_location: str = ""  # of a crash: kernel, line, address, thread
    errors: tuple[DrawError, ...] = ()  # of the checks that it passed
    unit_shares: tuple[UnitShare, ...] = ()  # read off a profiler's metrics
    compiler_remarks: tuple[str, ...] = ()  # on code that it compiled and that loses time
