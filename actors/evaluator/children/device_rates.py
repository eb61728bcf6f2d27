"""Measures what a device does at best: copies, reads, launches, matrix products.  Trusted.

A figure that can't be measured is left out.  On a host the figures are those of the threads that a
call of the task has.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from statistics import median

import torch
from msgspec.structs import replace

from actors.evaluator.children import task_cost
from actors.evaluator.children.cluster_limits import active_clusters
from actors.evaluator.children.host_loops import HostLoops, compiled_loops
from actors.evaluator.children.product_kernels import PRODUCTS as INSTRUCTIONS
from actors.evaluator.children.product_kernels import ProductKernel
from actors.evaluator.children.read_kernels import ReadKernels
from actors.evaluator.devices.device_description import cpu_device
from protocol.facts import DeviceRates, MatrixPrecision
from protocol.values import DeviceKind

ALL_S = {"cuda": 1.6, "cpu": 2.0}  # no further figure is begun after this time
ONE_S = 0.25  # for one figure
MAX_ROUNDS = 15
MIN_ROUNDS = 3
WARM_UP_ROUNDS = 2
LARGE_BYTES = 1 << 30  # of each buffer on a card: beyond all caches
HOST_BYTES = (1 << 26, 1 << 28)  # of each buffer on a host: at least, at most
LAUNCHES = 200  # of one series
HOST_LOOP_ROUNDS = 25  # of five milliseconds
ROUND_S, MAX_TIMES = 0.003, 200  # short work is timed together, up to so long and so often
MAX_SPREAD = 1.5  # on a card: more means that other programs used it
LONG_ROUND_S = 1e-4
MIN_BUSY_SHARE = 0.9  # of the time: less means that other processes had the processor
MAX_CACHED_BYTES = {
    "cuda": 1 << 26,
    "cpu": 1 << 24,
}  # of both buffers of a copy that is to stay in the last cache
# Launches of the reading kernels take about 200 us each, so that the launch itself is no part.
CACHED_READS, SHARED_READS = 64, 512
MATRIX_SIZE = {"cuda": 8192, "cpu": 768}
FLOAT32_SIZE = 4096  # on a card, where float32 without tensor cores takes ten times as long
BFLOAT16_FLAGS = {"avx512_bf16", "amx_tile"}  # of a processor that multiplies bfloat16
PRODUCTS: dict[MatrixPrecision, tuple[torch.dtype, bool]] = {  # dtype, TF32
    "float32": (torch.float32, False),
    "tf32": (torch.float32, True),
    "bfloat16": (torch.bfloat16, False),
    "float16": (torch.float16, False),
}


class RateTimer:
    """Times work on one device, within a limit of time."""

    def __init__(self, device: DeviceKind) -> None:
        self.device = device
        self._began, self._cpu_began = time.perf_counter(), time.process_time()
        self._until = self._began + ALL_S[device]
        self._spread = 1.0  # the median round over the fastest, at worst

    @property
    def is_settled(self) -> bool:
        """Whether this process had its device to itself, so that the figures are worth storing."""
        if self.device == "cuda":
            return self._spread <= MAX_SPREAD
        busy = time.process_time() - self._cpu_began
        return busy >= MIN_BUSY_SHARE * (time.perf_counter() - self._began)

    @property
    def is_late(self) -> bool:
        """Whether no further figure is to be begun."""
        return time.perf_counter() > self._until

    def seconds(self, work: Callable[[], object], times: int | None = None) -> float:
        """Return the seconds of `work` in the best round; `times`: how often it is timed in one.

        Other processes and lower clocks make a round slower, and nothing makes it faster.
        """
        for _round in range(WARM_UP_ROUNDS):
            work()
        if times is None:
            times = max(1, min(MAX_TIMES, int(ROUND_S / max(self._round(work, 1), 1e-9))))
        rounds: list[float] = []
        until = time.perf_counter() + ONE_S
        while len(rounds) < MAX_ROUNDS:
            rounds.append(self._round(work, times) / times)
            if len(rounds) >= MIN_ROUNDS and time.perf_counter() > until:
                break
        if median(rounds) * times > LONG_ROUND_S:  # the noise of short ones proves nothing
            self._spread = max(self._spread, median(rounds) / min(rounds))
        return min(rounds)

    def _round(self, work: Callable[[], object], times: int) -> float:
        self._synchronize()
        began = time.perf_counter()
        for _time in range(times):
            work()
        self._synchronize()
        return time.perf_counter() - began

    def _synchronize(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


def measure_rates(device: DeviceKind, cache_bytes: int) -> tuple[DeviceRates, bool]:
    """Measure the rates of this process's device; `cache_bytes`: its last cache, 0 if unknown.

    Return whether they are settled, too: those of a busy machine are not to be stored.
    """
    # The compiler's time is none in which this process has the processor.
    loops = compiled_loops() if device == "cpu" else None
    timer = RateTimer(device)
    with torch.no_grad():
        rates = _launches(timer) if device == "cuda" else _empty_call(timer)
        rates = _reads(timer, cache_bytes, rates)
        cached, products = _cached_copy_rate(timer, cache_bytes), _matrix_rates(timer)
        copy = _copy_rate(timer, cache_bytes)
        instructions = _instruction_rates(timer)
    if copy is not None and cached is not None and cached < copy:
        cached = None  # a cache that is slower than memory was not measured, but disturbed
    found = replace(
        rates,
        copy_gb_s=copy,
        cached_copy_gb_s=cached,
        cache_bytes=cache_bytes,
        tflops=products,
        instruction_tflops=instructions,
        clusters=_clusters(timer),
    )
    if loops is not None:
        found = _with_host_loops(found, loops)
    return found, timer.is_settled and bool(products) and copy is not None


def _launches(timer: RateTimer) -> DeviceRates:
    """Return the microseconds of one empty kernel to its end, and of each further of a series."""

    def launch() -> None:
        torch.cuda._sleep(0)  # type: ignore[no-untyped-call]

    one = timer.seconds(launch, 1) * 1e6
    further = max(0.0, timer.seconds(launch, LAUNCHES) * 1e6 * LAUNCHES - one) / (LAUNCHES - 1)
    in_graph = _in_graph(timer, launch)
    return DeviceRates(
        launch_us=_rounded(one),
        next_launch_us=_rounded(further) if further else None,
        graph_launch_us=_rounded(in_graph * 1e6) if in_graph else None,
    )


def _in_graph(timer: RateTimer, work: Callable[[], object]) -> float | None:
    """Return the seconds of `work`, one of many in a CUDA graph: the host launches nothing then."""
    # Without graphs, as on an older driver, the figure is left out.
    with suppress(RuntimeError):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _time in range(LAUNCHES):
                work()
        return timer.seconds(graph.replay, 1) / LAUNCHES
    return None


def _empty_call(timer: RateTimer) -> DeviceRates:
    module, x = torch.nn.Identity(), torch.empty(1)
    us = _rounded(timer.seconds(lambda: module(x)) * 1e6)
    return DeviceRates(empty_call_us=us, threads=torch.get_num_threads())


def _reads(timer: RateTimer, cache_bytes: int, rates: DeviceRates) -> DeviceRates:
    """Return the rates with those of reading alone; without the ones that can't be measured."""
    # Memory that is not given, and a torch that loads no PTX, leave figures out.
    with suppress(RuntimeError):
        source = torch.ones(_large_bytes(timer, cache_bytes) // 4, device=timer.device)
        if timer.device == "cpu":
            return replace(rates, read_gb_s=_rate(timer, lambda: source.sum(), source.nbytes))
        kernels, cached = ReadKernels(), source[: cache_bytes // 8]  # half of the cache
        return replace(
            rates,
            read_gb_s=_rate(timer, lambda: kernels.read(source), kernels.bytes_of(source)),
            cached_read_gb_s=_rate(
                timer,
                lambda: kernels.read(cached, CACHED_READS),
                kernels.bytes_of(cached) * CACHED_READS,
            ),
            shared_read_gb_s=_rate(
                timer,
                lambda: kernels.read_shared(SHARED_READS),
                kernels.round_bytes * SHARED_READS,
            ),
        )
    return rates


def _with_host_loops(rates: DeviceRates, loops: HostLoops) -> DeviceRates:
    """Return the rates with those of vector multiply-adds and of the clock."""
    gflops = loops.gflops(max(1, rates.threads), HOST_LOOP_ROUNDS)
    clock_ghz = loops.clock_ghz(HOST_LOOP_ROUNDS)
    return replace(rates, fma_gflops=_rounded(gflops), clock_ghz=_rounded(clock_ghz))


def _rate(timer: RateTimer, work: Callable[[], object], moved: int) -> float | None:
    """Return the rate, 10^9 bytes a second, of work that moves `moved` bytes."""
    return _rounded(moved / timer.seconds(work) / 1e9) if moved else None


def _large_bytes(timer: RateTimer, cache_bytes: int) -> int:
    """Return the size of a buffer beyond all caches."""
    if timer.device == "cpu":
        return min(max(cache_bytes, HOST_BYTES[0]), HOST_BYTES[1])
    return LARGE_BYTES


def _copy_rate(timer: RateTimer, cache_bytes: int) -> float | None:
    """Return bytes read plus bytes written, in 10^9 a second; None where memory is short."""
    size = _large_bytes(timer, cache_bytes)
    # Memory that the allocator or the system does not give leaves the figure out.
    with suppress(RuntimeError):
        source, target = _buffers(timer, size)
        # A card has a copy engine's way and a kernel's way; the faster one counts.
        ways: list[Callable[[], object]] = [lambda: target.copy_(source)]
        if timer.device == "cuda":
            ways.append(lambda: torch.neg(source, out=target))
        return _rounded(2 * size / min(timer.seconds(way) for way in ways) / 1e9)
    return None


def _cached_copy_rate(timer: RateTimer, cache_bytes: int) -> float | None:
    """Return the rate of a copy whose two buffers take at most half of the last cache."""
    size = min(cache_bytes // 2, MAX_CACHED_BYTES[timer.device]) // 8 * 4
    if not size or timer.is_late:
        return None
    source, target = _buffers(timer, size)

    def copy() -> object:
        return torch.neg(source, out=target)

    copy()
    seconds = _in_graph(timer, copy) if timer.device == "cuda" else timer.seconds(copy)
    return _rounded(2 * size / seconds / 1e9) if seconds else None


def _buffers(timer: RateTimer, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    source = torch.ones(size // 4, device=timer.device)
    return source, torch.zeros_like(source)


def _matrix_rates(timer: RateTimer) -> dict[MatrixPrecision, float]:
    """Return 10^12 operations a second of matrix products, by precision."""
    found: dict[MatrixPrecision, float] = {}
    for precision, (dtype, tf32) in PRODUCTS.items():
        if timer.is_late or (timer.device == "cpu" and precision not in _host_precisions()):
            continue
        size = MATRIX_SIZE[timer.device]
        if timer.device == "cuda" and precision == "float32":
            size = FLOAT32_SIZE
        with suppress(RuntimeError), task_cost.tf32_products(tf32):
            left, right = (
                torch.rand(size, size, device=timer.device, dtype=dtype) for _side in range(2)
            )
            out = torch.empty_like(left)
            seconds = timer.seconds(lambda: torch.mm(left, right, out=out))  # noqa: B023
            found[precision] = _rounded(2 * size**3 / seconds / 1e12)
    return found


def _host_precisions() -> tuple[MatrixPrecision, ...]:
    """Return the precisions that this processor has instructions for; TF32 is none of them."""
    has_bfloat16 = BFLOAT16_FLAGS & set(cpu_device().facts["vector"].split())
    return ("float32", "bfloat16") if has_bfloat16 else ("float32",)


def _instruction_rates(timer: RateTimer) -> dict[str, float]:
    """Return 10^12 operations a second of instructions alone; {} on a host."""
    found: dict[str, float] = {}
    own = RateTimer(timer.device)  # rounds of half a millisecond prove nothing about other programs
    for name, product in INSTRUCTIONS.items() if timer.device == "cuda" else ():
        if timer.is_late:
            continue
        # A card without the instruction, and a torch that loads no PTX, leave the figure out.
        with suppress(RuntimeError):
            kernel = ProductKernel(product)
            found[name] = _rounded(kernel.flops / own.seconds(kernel.run, 1) / 1e12)
    return found


def _clusters(timer: RateTimer) -> dict[int, int]:
    if timer.device == "cuda":
        with suppress(RuntimeError):
            return active_clusters()
    return {}


def _rounded(figure: float) -> float:
    return float(f"{figure:.4g}")
