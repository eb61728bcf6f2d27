"""The roofline of a device: how near a candidate comes to the peak, and the physical limit.

See `docs/evaluation-laws.md`, law 8.

Pure except for `measure_cpu_peak`.  Bytes are those that must move: inputs, parameters and outputs,
once.  The figures of cards are the makers' dense ones; the driver's figures of the memory come
first.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Mapping
from statistics import median

from protocol.values import Device, Value

PEAK_MARGIN = 1.25  # the floor permits this much more than the maker's figure
# The speed of caches over memory, more than any L2 gives.  Bytes that fit there need no memory.
CACHE_OVER_MEMORY = 8.0
CPU_BYTES = 1 << 26
CPU_ROUNDS = 5
DDR_FACTOR = 2  # transfers in one cycle of a memory's clock


class DevicePeak(Value, frozen=True, kw_only=True):
    """The peak performance of a device."""

    gb_s: float | None = None  # of its memory
    tflops: float | None = None  # of ordinary float32
    tensor_tflops: float | None = None  # of half-precision matrix units, without sparsity
    cache_bytes: int = 0  # of the last level
    source: str = ""  # "driver", "table" or "measured"

    @property
    def max_tflops(self) -> float | None:
        """The peak of its fastest units, which a floor must assume."""
        known = [figure for figure in (self.tflops, self.tensor_tflops) if figure is not None]
        return max(known) if known else None


# The most specific first: a pattern in the card's name, GB/s, TFLOP/s (float32, tensor), L2 in MiB.
KNOWN_GPUS = (
    (r"\bB200", 8000, 75, 2250, 126),
    (r"\bH200", 4800, 67, 989, 50),
    (r"\bH100 NVL", 3938, 60, 835, 50),
    (r"\bH100 PCIe", 2039, 51, 756, 50),
    (r"\bH100", 3352, 67, 989, 50),
    (r"\bA100.*80GB", 2039, 19.5, 312, 40),
    (r"\bA100", 1555, 19.5, 312, 40),
    (r"\bL40S", 864, 91.6, 362, 96),
    (r"\bL4\b", 300, 30.3, 121, 48),
    (r"\bA10\b", 600, 31.2, 125, 6),
    (r"\bV100", 900, 15.7, 125, 6),
    (r"\bRTX 4090", 1008, 82.6, 330, 72),
    (r"\bRTX 3090 Ti", 1008, 40, 160, 6),
    (r"\bRTX 3090", 936, 35.6, 142, 6),
)


def gpu_peak(
    name: str, *, clock_khz: float = 0, bus_bits: float = 0, l2_bytes: float = 0
) -> DevicePeak:
    """Return the peak of a card; figures that the driver gave go before the table's."""
    row = next((row for row in KNOWN_GPUS if re.search(row[0], name)), None)
    driver = clock_khz * 1e3 * bus_bits / 8 * DDR_FACTOR / 1e9
    table = float(row[1]) if row else None
    # Some drivers report the clock of idle memory, or half of it: the table is right then.
    is_near_table = table is None or 0.8 * table <= driver <= 1.3 * table
    trusted = driver if driver and is_near_table else None
    return DevicePeak(
        gb_s=trusted or table,
        tflops=float(row[2]) if row else None,
        tensor_tflops=float(row[3]) if row else None,
        cache_bytes=int(l2_bytes) or (row[4] << 20 if row else 0),
        source="driver" if trusted else ("table" if row else ""),
    )


def device_peak(device: Device) -> DevicePeak:
    """Return the peak of `device`: from its facts and the table, or measured on this processor."""
    if device.kind == "cpu":
        return measure_cpu_peak(device.fingerprint)
    facts = device.facts
    return gpu_peak(
        facts.get("card", device.name),
        clock_khz=_figure(facts, "memory clock") * 1e3,
        bus_bits=_figure(facts, "memory bus"),
        l2_bytes=_figure(facts, "L2 cache") * 2**20,
    )


def _figure(facts: Mapping[str, str], name: str) -> float:
    found = re.match(r"[\d.]+", facts.get(name, ""))
    return float(found[0]) if found else 0.0


@functools.lru_cache(maxsize=8)
def measure_cpu_peak(_fingerprint: str) -> DevicePeak:
    """Measure the copy bandwidth of one core; several cores copy more, so it is not a floor."""
    source, target = bytearray(CPU_BYTES), bytearray(CPU_BYTES)
    times_s = []
    for _round in range(CPU_ROUNDS):
        began = time.perf_counter()
        target[:] = source  # one memcpy: read and written
        times_s.append(time.perf_counter() - began)
    return DevicePeak(gb_s=2 * CPU_BYTES / median(times_s) / 1e9, source="measured")


# --- how near -------------------------------------------------------------------------------------


def roofline_figures(
    bytes_moved: float, flops: float, us: float, peak: DevicePeak
) -> dict[str, str]:
    """Return printable figures of a call of `us` microseconds; unknown figures are left out."""
    if us <= 0:
        return {}
    figures: dict[str, str] = {}
    gb_s, tflops = bytes_moved / us / 1e3, flops / us / 1e6
    of_memory = gb_s / peak.gb_s if peak.gb_s else None
    of_units = tflops / peak.max_tflops if peak.max_tflops else None
    if bytes_moved:
        resident = peak.cache_bytes >= bytes_moved
        figures["bandwidth"] = f"{gb_s:.4g} GB/s{_share(of_memory, peak)}"
        if resident:
            figures["bandwidth"] += "; all of it fits into the last cache"
    if flops:
        figures["arithmetic"] = f"{tflops:.4g} TFLOP/s{_share(of_units, peak)}"
    if of_memory is not None and (of_units is not None or not flops):
        figures["bound"] = _bound(of_memory if bytes_moved else 0.0, of_units or 0.0)
    return figures


def _share(share: float | None, peak: DevicePeak) -> str:
    return "" if share is None else f", {share:.0%} of the peak ({peak.source})"


def _bound(of_memory: float, of_units: float) -> str:
    if max(of_memory, of_units) < 0.1:
        return "neither memory nor arithmetic: latency, launches or too little parallel work"
    return "memory" if of_memory >= of_units else "arithmetic"


# --- the physical limit ---------------------------------------------------------------------------


def floor_us(bytes_in_out: float, flops: float, peak: DevicePeak) -> float:
    """Return the microseconds that a call needs on a perfect device; 0.0 where nothing is known.

    Every assumption is generous, so that an honest candidate is never below the floor: memory is
    `PEAK_MARGIN` faster than its figure, arithmetic runs on the fastest units, and bytes that fit
    into the last cache move from there.
    """
    times = [0.0]
    if peak.gb_s is not None and peak.source != "measured":
        beyond = max(0.0, bytes_in_out - peak.cache_bytes)
        within = bytes_in_out - beyond
        bytes_a_us = peak.gb_s * 1e3 * PEAK_MARGIN
        times.append(beyond / bytes_a_us + within / (bytes_a_us * CACHE_OVER_MEMORY))
    if peak.max_tflops is not None:
        # Units for eight bits do twice the figure.
        times.append(flops / (peak.max_tflops * 1e6 * PEAK_MARGIN * 2))
    return max(times)
