"""The metrics that ncu measures of a kernel, and what they are of one launch.  Pure.

Names are ncu's, of compute capability 7.0 and later.  A metric that a card does not have is left
out by `ncu_report`, and every property that needs it is None then.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from protocol.values import Value

DURATION = "gpu__time_duration.sum"
DRAM_READ, DRAM_WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
DRAM_SHARE = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"
L2_SHARE = "lts__throughput.avg.pct_of_peak_sustained_elapsed"
# Of the busiest slice of L2: all accesses to one address go to one slice.
L2_SLICE_SHARE = "lts__throughput.max.pct_of_peak_sustained_elapsed"
L1_SHARE = "l1tex__throughput.avg.pct_of_peak_sustained_active"
L2_READS, L2_WRITES = "lts__t_sectors_op_read.sum", "lts__t_sectors_op_write.sum"
L2_ATOMICS, L2_REDUCTIONS = "lts__t_sectors_op_atom.sum", "lts__t_sectors_op_red.sum"
L2_HITS, L1_HITS = "lts__t_sector_hit_rate.pct", "l1tex__t_sector_hit_rate.pct"
LOAD_REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
LOAD_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
STORE_REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum"
STORE_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"
LOAD_BYTES_A_SECTOR = "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio"
STORE_BYTES_A_SECTOR = "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.ratio"
LOADS = (LOAD_REQUESTS, LOAD_SECTORS, LOAD_BYTES_A_SECTOR)
STORES = (STORE_REQUESTS, STORE_SECTORS, STORE_BYTES_A_SECTOR)
LOCAL_LOAD_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum"
LOCAL_STORE_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum"
# By the addresses of each access.  The least number may be one for each access, also for those of
# 16 bytes a thread, which take four: the bytes of a turn tell conflicts from those.
SHARED_TURNS, SHARED_LEAST_TURNS = (
    "memory_l1_wavefronts_shared",
    "memory_l1_wavefronts_shared_ideal",
)
SHARED_BYTES_A_TURN = "smsp__sass_average_data_bytes_per_wavefront_mem_shared.ratio"
SHARED_TURN_BYTES = 128  # at most: 32 banks of four bytes
WIDEST_ACCESS_TURNS = 4  # of 16 bytes a thread
SHARED_ACCESSES = (SHARED_TURNS, SHARED_LEAST_TURNS, SHARED_BYTES_A_TURN)
SHARED_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
ISSUE_SHARE = "smsp__issue_active.avg.pct_of_peak_sustained_active"
SM_ACTIVE, SM_ELAPSED = "sm__cycles_active.avg", "sm__cycles_elapsed.max"
OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"
MAX_OCCUPANCY = "sm__maximum_warps_per_active_cycle_pct"
ACTIVE_THREADS = "smsp__thread_inst_executed_per_inst_executed.ratio"
REGISTERS = "launch__registers_per_thread"
RESERVED_SHARED = 1024  # bytes that the driver takes of each block, from compute capability 8.0 on
# A block's, with that part.
SHARED_BYTES, DRIVER_SHARED_BYTES = (
    "launch__shared_mem_per_block",
    "launch__shared_mem_per_block_driver",
)
GRID, BLOCK = "launch__grid_size", "launch__block_size"
WAVES, SM_COUNT = "launch__waves_per_multiprocessor", "launch__sm_count"

XU_PIPE = "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active"
FMA_PIPE = "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active"
# The half of the FMA pipe that integer products run on, of compute capability 8.6 and later.
FMA_HEAVY_PIPE = "sm__pipe_fmaheavy_cycles_active.avg.pct_of_peak_sustained_active"
LSU_PIPE = "sm__inst_executed_pipe_lsu.avg.pct_of_peak_sustained_active"
TENSOR_CORES = "tensor cores"
# A pipe's metric -> what it computes, for people.
PIPES = {
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": TENSOR_CORES,
    FMA_PIPE: "FMA pipe (float32)",
    FMA_HEAVY_PIPE: "FMA-heavy pipe (integer products)",
    "sm__pipe_alu_cycles_active.avg.pct_of_peak_sustained_active": "ALU pipe (integers, logic)",
    "sm__pipe_fp64_cycles_active.avg.pct_of_peak_sustained_active": "float64 pipe",
    XU_PIPE: "XU pipe (exp, sqrt, division, casts)",
    LSU_PIPE: "load/store pipe",
}
# ncu's limit of blocks a multiprocessor -> what sets it.
OCCUPANCY_LIMITS = {
    "launch__occupancy_limit_registers": "registers",
    "launch__occupancy_limit_shared_mem": "shared memory",
    "launch__occupancy_limit_warps": "threads",
    "launch__occupancy_limit_blocks": "blocks",
}
BUSY_XU = 0.5  # of the time: from here on it is what the warps wait for
MUCH_MORE = 0.1  # that a half of the FMA pipe is busy than all of it: then it is named
FEW_XU = 0.1  # of the time: below it they wait for shared memory, if they use that
# What warps wait for if a stall's reason can be either; `stall_text` names the one that it is.
MIO_UNITS = "shared memory, the XU pipe or special registers"
# ncu's stall reason -> what the warps wait for.
STALLS = {
    "long_scoreboard": "data from global or local memory",
    "short_scoreboard": f"an answer of {MIO_UNITS}",
    "mio_throttle": f"room in the queue of {MIO_UNITS}",
    "lg_throttle": "room in the queue of global memory",
    "tex_throttle": "room in the queue of textures",
    "barrier": "other warps at a barrier",
    "membar": "memory fences",
    "math_pipe_throttle": "a busy arithmetic pipe",
    "gmma": "warpgroup matrix products",
    "wait": "the fixed latency of the instruction before",
    "no_instruction": "instructions to be fetched (long code, or many jumps)",
    "branch_resolving": "branch targets",
    "dispatch_stall": "the dispatcher",
    "drain": "stores to leave at their end",
    "imc_miss": "constants",
    "sleeping": "the end of a sleep",
    "not_selected": "its turn, though ready",
    "misc": "other reasons",
}
STALL_METRICS = {
    f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio": reason
    for reason in STALLS
}
METRICS = (
    *(DURATION, DRAM_READ, DRAM_WRITTEN, DRAM_SHARE, L2_SHARE, L2_SLICE_SHARE, L1_SHARE),
    *(L2_HITS, L1_HITS),
    *(L2_READS, L2_WRITES, L2_ATOMICS, L2_REDUCTIONS),
    *(LOAD_REQUESTS, LOAD_SECTORS, STORE_REQUESTS, STORE_SECTORS),
    *(LOAD_BYTES_A_SECTOR, STORE_BYTES_A_SECTOR, LOCAL_LOAD_SECTORS, LOCAL_STORE_SECTORS),
    *(*SHARED_ACCESSES, SHARED_WAVEFRONTS, ISSUE_SHARE, SM_ACTIVE, SM_ELAPSED),
    *(OCCUPANCY, MAX_OCCUPANCY, ACTIVE_THREADS, REGISTERS, SHARED_BYTES, GRID, BLOCK),
    DRIVER_SHARED_BYTES,
    *(WAVES, SM_COUNT, *PIPES, *OCCUPANCY_LIMITS, *STALL_METRICS),
)
SECTOR_BYTES = 32


class KernelMetrics(Value, frozen=True, kw_only=True):
    """One launch of a kernel: microseconds, bytes, and shares between 0 and 1."""

    name: str
    # ncu's name of a metric -> its value in base units: nanoseconds, bytes, per cent.
    figures: dict[str, float] = msgspec.field(default_factory=dict)

    def figure(self, metric: str) -> float | None:
        """Return a metric's value; None where it was not measured."""
        return self.figures.get(metric)

    def share(self, metric: str) -> float | None:
        """Return a metric in per cent as a share."""
        found = self.figures.get(metric)
        return None if found is None else found / 100

    def sum_of(self, *metrics: str) -> float | None:
        """Return the sum of metrics; None unless all were measured."""
        found = [self.figures[metric] for metric in metrics if metric in self.figures]
        return sum(found) if len(found) == len(metrics) else None

    @property
    def us(self) -> float:
        """The time of this launch; 0.0 where it was not measured."""
        return self.figures.get(DURATION, 0.0) / 1e3

    @property
    def dram_bytes(self) -> float | None:
        """The bytes that this launch read from DRAM and wrote to it."""
        return self.sum_of(DRAM_READ, DRAM_WRITTEN)

    @property
    def dram_gb_s(self) -> float | None:
        """The rate of DRAM, reads and writes together."""
        moved = self.dram_bytes
        return moved / self.us / 1e3 if moved is not None and self.us > 0 else None

    @property
    def local_bytes(self) -> float | None:
        """The bytes of local memory that were loaded and stored: spills and arrays."""
        sectors = self.sum_of(LOCAL_LOAD_SECTORS, LOCAL_STORE_SECTORS)
        return None if sectors is None else sectors * SECTOR_BYTES

    @property
    def conflict_share(self) -> float | None:
        """The part of the turns of accesses to shared memory that bank conflicts add, at least.

        Where the bytes of a turn are not known, each access may be of 16 bytes a thread.
        """
        turns, accesses, moved = map(self.figures.get, SHARED_ACCESSES)
        if not turns or accesses is None:
            return None
        if moved is None:
            return max(0.0, 1 - WIDEST_ACCESS_TURNS * accesses / turns)
        return max(0.0, 1 - max(accesses / turns, moved / SHARED_TURN_BYTES))

    @property
    def shared_bytes(self) -> float | None:
        """The shared memory of a block that the kernel asks for, without the driver's part."""
        whole = self.figures.get(SHARED_BYTES)
        reserved = self.figures.get(DRIVER_SHARED_BYTES, RESERVED_SHARED)
        return None if whole is None else max(0.0, whole - reserved)

    @property
    def shared_memory_share(self) -> float | None:
        """The share of the launch's cycles in which shared memory serves an access."""
        wavefronts, cycles = self.figures.get(SHARED_WAVEFRONTS), self.figures.get(SM_ELAPSED)
        count = self.figures.get(SM_COUNT)
        if wavefronts is None or not cycles or not count:
            return None
        return min(1.0, wavefronts / (cycles * count))

    @property
    def busy_multiprocessors(self) -> float | None:
        """The share of the multiprocessors that had a block, on average over the launch."""
        active, elapsed = self.figures.get(SM_ACTIVE), self.figures.get(SM_ELAPSED)
        return None if active is None or not elapsed else min(1.0, active / elapsed)

    def launch_share(self, metric: str) -> float | None:
        """Return a share of the time in which blocks run, as one of the whole launch.

        That is of the time of all multiprocessors, as the shares of DRAM and of L2 are.
        """
        found, busy = self.share(metric), self.busy_multiprocessors
        return found if found is None or busy is None else found * busy

    @property
    def pipes(self) -> dict[str, float]:
        """The pipes by name, the busiest first: how much of the whole launch each is busy."""
        found = {name: self.launch_share(metric) for metric, name in PIPES.items()}
        known = [(name, share) for name, share in found.items() if share is not None]
        heavy, both = self.launch_share(FMA_HEAVY_PIPE), self.launch_share(FMA_PIPE)
        if heavy is not None and both is not None and heavy < both + MUCH_MORE:
            known = [pipe for pipe in known if pipe[0] != PIPES[FMA_HEAVY_PIPE]]
        return dict(sorted(known, key=lambda pair: -pair[1]))

    @property
    def occupancy_limit(self) -> tuple[str, int] | None:
        """What limits the blocks of a multiprocessor, and their number."""
        limits = [
            (self.figures[metric], name)
            for metric, name in OCCUPANCY_LIMITS.items()
            if self.figures.get(metric, 0) > 0
        ]
        if not limits:
            return None
        blocks, name = min(limits, key=lambda pair: pair[0])
        return name, int(blocks)

    def stall_text(self, reason: str) -> str:
        """Return what a warp waits for.

        Shared memory, the XU pipe and special registers share a queue; the busy one is named.
        """
        text, xu = STALLS[reason], self.share(XU_PIPE)
        if xu is not None and xu >= BUSY_XU:
            return text.replace(MIO_UNITS, f"the {PIPES[XU_PIPE]}")
        if self.shared_bytes == 0:
            return text.replace("shared memory, ", "")
        if xu is not None and xu < FEW_XU and self.shared_bytes:
            return text.replace(MIO_UNITS, "shared memory")
        return text

    @property
    def stalls(self) -> dict[str, float]:
        """Stall reasons, the largest first: the share of the time in which a warp waits."""
        found = {
            reason: self.figures[metric]
            for metric, reason in STALL_METRICS.items()
            if self.figures.get(metric, 0.0) > 0
        }
        whole = sum(found.values())
        return {
            reason: value / whole for reason, value in sorted(found.items(), key=lambda p: -p[1])
        }


class MeasuredKernel(Value, frozen=True, kw_only=True):
    """A kernel of one call: the metrics of its longest launch, and the time of all of them."""

    metrics: KernelMetrics
    launches: int = 1
    total_us: float = 0.0
    dram_bytes: float | None = None  # of all launches


class MeasuredCall(Value, frozen=True, kw_only=True):
    """The kernels of one call of a module, the longest first."""

    kernels: tuple[MeasuredKernel, ...] = ()
    launches: int = 0  # that were measured
    is_cut: bool = False  # there may be more launches, which were not measured
    is_chosen: bool = False  # those of the longest kernels were measured
    other_kernels: int = 0  # kernels that are left out of `kernels`
    other_us: float = 0.0  # their time

    @property
    def us(self) -> float:
        """The time of all measured launches."""
        return sum(kernel.total_us for kernel in self.kernels) + self.other_us

    @property
    def dram_bytes(self) -> float | None:
        """The DRAM traffic of the kernels that are kept; None where one's is not known."""
        moved = [kernel.dram_bytes for kernel in self.kernels]
        known = [each for each in moved if each is not None]
        return sum(known) if known and len(known) == len(moved) else None


def figures_of(cells: Mapping[str, str], units: Mapping[str, str]) -> dict[str, float]:
    """Return the metrics in a row of ncu's table, in base units; others are left out."""
    found = {}
    for metric in METRICS:
        try:
            value = float(cells.get(metric, "").replace(",", ""))
        except ValueError:
            continue  # "n/a", "no data", or a metric that this card does not have
        scaled = value * _scale(units.get(metric, ""))
        if 0 <= scaled < float("inf"):
            found[metric] = scaled
    return found


_SCALES = {
    **{"s": 1e9, "second": 1e9, "ms": 1e6, "msecond": 1e6, "us": 1e3, "usecond": 1e3},
    **{"Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "Tbyte": 1e12},
}


def _scale(unit: str) -> float:
    """Return the factor to the base unit: nanoseconds or bytes."""
    return _SCALES.get(unit.split("/")[0], 1.0)
