"""The rates of devices, stored from run to run in the user's cache folder.

There is one JSON file for each device, driver, torch and measuring method; only the judge writes
it.  A file that can't be read or is of something else counts as missing, and the rates are measured
again.
"""

from __future__ import annotations

import hashlib
import math
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from protocol.atomic_file import write_atomically
from protocol.facts import DeviceRates
from protocol.values import Device, Value

VERSION = 6  # of the measuring method; files of another version are not used
MAX_BYTES = 1 << 14
UNSETTLED_S = 3600.0  # on a machine that stays busy, not every process measures for seconds


Name = TypeVar("Name", bound=str)


class RatesFile(Value, frozen=True, kw_only=True):
    """A file's contents: the rates, and what they were measured of."""

    version: int
    fingerprint: str
    rates: DeviceRates
    is_settled: bool  # False: other programs used the device
    measured_at: float  # seconds since 1970


def rates_folder(environment: Mapping[str, str]) -> Path:
    """Return the folder of rates for the user of `environment`."""
    cache = environment.get("XDG_CACHE_HOME", "")
    # The XDG specification says that a relative path is to be ignored.
    home = Path(environment.get("HOME") or tempfile.gettempdir())
    root = Path(cache) if Path(cache).is_absolute() else home / ".cache"
    return root / "stark-kernels" / "rates"


class RatesCache:
    """The rates of the devices that one user has measured."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def find(self, device: Device, now: float) -> DeviceRates | None:
        """Return the rates of just this device; None where they are to be measured.

        Unsettled rates are not told, and not measured again for `UNSETTLED_S`: they are empty.
        """
        entry = self._read(device)
        if entry is None:
            return None
        if entry.is_settled:
            return entry.rates
        return DeviceRates() if 0.0 <= now - entry.measured_at <= UNSETTLED_S else None

    def store(
        self, device: Device, rates: DeviceRates, now: float, *, is_settled: bool = True
    ) -> DeviceRates:
        """Store what was measured, and return what is told of it.

        Other programs only lower a rate, so an earlier figure that is better stays.  A cache that
        can't be written costs time, no result.
        """
        earlier = self._read(device)
        best = rates if earlier is None else better_rates(earlier.rates, rates)
        entry = RatesFile(
            version=VERSION,
            fingerprint=device.fingerprint,
            rates=best,
            is_settled=is_settled,
            measured_at=now,
        )
        path = self._path(device)
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, msgspec.json.encode(entry), private=True)
        return best if is_settled else DeviceRates()

    def _read(self, device: Device) -> RatesFile | None:
        try:
            with self._path(device).open("rb") as file:
                entry = msgspec.json.decode(file.read(MAX_BYTES), type=RatesFile)
        except (OSError, msgspec.DecodeError):
            return None
        wanted = (VERSION, device.fingerprint)
        if (entry.version, entry.fingerprint) != wanted or not has_possible_rates(entry.rates):
            return None
        return entry

    def _path(self, device: Device) -> Path:
        # The fingerprint has the versions of torch, CUDA and the driver, and the clock's limit.
        key = f"{VERSION}\0{device.kind}\0{device.fingerprint}"
        return self.root / f"{hashlib.sha256(key.encode()).hexdigest()[:40]}.json"


def has_possible_rates(rates: DeviceRates) -> bool:
    """Whether every figure that is known is a positive number."""
    known = [
        *(rates.copy_gb_s, rates.cached_copy_gb_s, rates.launch_us, rates.next_launch_us),
        *(rates.read_gb_s, rates.cached_read_gb_s, rates.shared_read_gb_s),
        *(rates.graph_launch_us, rates.empty_call_us, *rates.tflops.values()),
        *(*rates.instruction_tflops.values(), *rates.clusters.values()),
        *(rates.fma_gflops, rates.clock_ghz),
    ]
    return all(figure is None or (math.isfinite(figure) and figure > 0) for figure in known)


def better_rates(one: DeviceRates, other: DeviceRates) -> DeviceRates:
    """Return the better figure of each pair: the higher rate, the shorter time."""
    return DeviceRates(
        copy_gb_s=_best(max, one.copy_gb_s, other.copy_gb_s),
        cached_copy_gb_s=_best(max, one.cached_copy_gb_s, other.cached_copy_gb_s),
        read_gb_s=_best(max, one.read_gb_s, other.read_gb_s),
        cached_read_gb_s=_best(max, one.cached_read_gb_s, other.cached_read_gb_s),
        shared_read_gb_s=_best(max, one.shared_read_gb_s, other.shared_read_gb_s),
        cache_bytes=other.cache_bytes,
        launch_us=_best(min, one.launch_us, other.launch_us),
        next_launch_us=_best(min, one.next_launch_us, other.next_launch_us),
        graph_launch_us=_best(min, one.graph_launch_us, other.graph_launch_us),
        empty_call_us=_best(min, one.empty_call_us, other.empty_call_us),
        tflops=_highest(one.tflops, other.tflops),
        instruction_tflops=_highest(one.instruction_tflops, other.instruction_tflops),
        clusters=other.clusters or one.clusters,
        threads=other.threads,
        fma_gflops=_best(max, one.fma_gflops, other.fma_gflops),
        clock_ghz=_best(max, one.clock_ghz, other.clock_ghz),
    )


def _highest(one: dict[Name, float], other: dict[Name, float]) -> dict[Name, float]:
    return {name: max(one.get(name, 0.0), other.get(name, 0.0)) for name in {**one, **other}}


def _best(choose: Callable[[list[float]], float], *figures: float | None) -> float | None:
    known = [figure for figure in figures if figure is not None]
    return choose(known) if known else None
