"""The physical limit of a device: no call is faster.  Pure.

See `docs/evaluation-laws.md`, law 8.

The figures of cards are the makers' dense ones; the driver's figures of the memory come first.
They reject what can't be true, and describe nothing: what is said about a candidate comes from
rates that were measured on the device (`facts/task_floor.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from protocol.values import Device, Value

PEAK_MARGIN = 1.25  # the floor permits this much more than the maker's figure
# The speed of caches over memory, more than any L2 gives.  Bytes that fit there need no memory.
CACHE_OVER_MEMORY = 8.0
DDR_FACTOR = 2  # transfers in one cycle of a memory's clock


class DevicePeak(Value, frozen=True, kw_only=True):
    """The peak performance of a device."""

    gb_s: float | None = None  # of its memory
    tflops: float | None = None  # of ordinary float32
    tensor_tflops: float | None = None  # of half-precision matrix units, without sparsity
    cache_bytes: int = 0  # of the last level
    source: str = ""  # "driver" or "table"

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
    """Return the peak of a card, from its facts and the table; nothing is known of a processor's.

    What a device really does is measured (`device_info.py`, `DeviceInfo.rates`).
    """
    if device.kind == "cpu":
        return DevicePeak()
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


def floor_us(bytes_in_out: float, flops: float, peak: DevicePeak) -> float:
    """Return the microseconds that a call needs on a perfect device; 0.0 where nothing is known.

    Every assumption is generous, so that an honest candidate is never below the floor: memory is
    `PEAK_MARGIN` faster than its figure, arithmetic runs on the fastest units, and bytes that fit
    into the last cache move from there.
    """
    times = [0.0]
    if peak.gb_s is not None:
        beyond = max(0.0, bytes_in_out - peak.cache_bytes)
        within = bytes_in_out - beyond
        bytes_a_us = peak.gb_s * 1e3 * PEAK_MARGIN
        times.append(beyond / bytes_a_us + within / (bytes_a_us * CACHE_OVER_MEMORY))
    if peak.max_tflops is not None:
        # Units for eight bits do twice the figure.
        times.append(flops / (peak.max_tflops * 1e6 * PEAK_MARGIN * 2))
    return max(times)
