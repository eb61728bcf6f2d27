"""Reads a card's memory, clocks, temperature and throttling from the driver, through NVML.

No candidate's process takes part, and no CUDA context is needed.  Without a driver every value is
unknown.  That is not an error, because machines without a card judge, too.
"""

from __future__ import annotations

from collections.abc import Callable

import pynvml

from actors.evaluator.devices import compute_mode
from protocol.values import Value

# The first one that is set is told: the driver sets "slowed down by hardware" with its causes.
THROTTLE_REASONS = {
    pynvml.nvmlClocksThrottleReasonHwThermalSlowdown: "too hot",
    pynvml.nvmlClocksThrottleReasonSwThermalSlowdown: "too hot",
    pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown: "braked by its power supply",
    pynvml.nvmlClocksThrottleReasonHwSlowdown: "slowed down by hardware",
    pynvml.nvmlClocksThrottleReasonSwPowerCap: "at its power limit",
}


class SensorReading(Value, frozen=True, kw_only=True):
    """One reading of a card's sensors."""

    sm_mhz: int = 0  # 0, as below: the driver does not tell it
    memory_mhz: int = 0
    celsius: int = 0
    throttled: str = ""  # the reason why its clocks are limited; "" when they are not

    def readable(self) -> str:
        """Return the reading as text for people."""
        known = [
            f"{self.sm_mhz} MHz" if self.sm_mhz else "",
            f"memory {self.memory_mhz} MHz" if self.memory_mhz else "",
            f"{self.celsius} °C" if self.celsius else "",
            f"throttled: {self.throttled}" if self.throttled else "not throttled",
        ]
        return ", ".join(filter(None, known))


class GpuSensors:
    """The sensors of one card, or of the card that a MIG instance is a part of, by the UUID."""

    def __init__(self, uuid: str) -> None:
        """`uuid`: of the card or the instance, as CUDA names it."""
        self._device: object = None  # the card or the instance, which has memory of its own
        self._card: object = None  # has the clocks
        if not uuid:
            return
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError:
            return
        self._device = _handle(uuid)
        self._card = _card_of(self._device)

    def read(self) -> SensorReading | None:
        """Read all sensors once; None where throttling can't be read."""
        if self._card is None:
            return None
        try:
            reasons = pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._card)
        except pynvml.NVMLError:
            return None
        clock, temperature = pynvml.nvmlDeviceGetClockInfo, pynvml.nvmlDeviceGetTemperature
        return SensorReading(
            sm_mhz=self._figure(clock, pynvml.NVML_CLOCK_SM),
            memory_mhz=self._figure(clock, pynvml.NVML_CLOCK_MEM),
            celsius=self._figure(temperature, pynvml.NVML_TEMPERATURE_GPU),
            throttled=next((words for bit, words in THROTTLE_REASONS.items() if reasons & bit), ""),
        )

    def _figure(self, ask: Callable[[object, int], int], which: int) -> int:
        """Return one sensor's figure; 0 where there is none, as for some of a virtual card."""
        try:
            return int(ask(self._card, which))
        except pynvml.NVMLError:
            return 0

    def limits_text(self) -> str:
        """Return the card's maximum clock and power; "" where the driver does not report them."""
        if self._card is None:
            return ""
        try:
            mhz = pynvml.nvmlDeviceGetMaxClockInfo(self._card, pynvml.NVML_CLOCK_SM)
            milliwatt = pynvml.nvmlDeviceGetEnforcedPowerLimit(self._card)
        except pynvml.NVMLError:
            return ""
        return f"{mhz} MHz, {milliwatt // 1000} W"

    def compute_mode_refusal(self) -> str | None:
        """Return why the judge can't use the card or the instance; None when it can."""
        return None if self._device is None else compute_mode.refusal(self._device)

    def memory_used(self) -> int | None:
        """Return the bytes that all processes together use on the card or the instance."""
        if self._device is None:
            return None
        try:
            return int(pynvml.nvmlDeviceGetMemoryInfo(self._device).used)
        except pynvml.NVMLError:
            return None


def _handle(uuid: str) -> object:
    """Return the driver's handle of a card or a MIG instance; None: the driver knows neither."""
    bare = uuid.removeprefix("GPU-").removeprefix("MIG-")
    for prefix in ("GPU-", "MIG-"):  # CUDA tells both without it
        try:
            return pynvml.nvmlDeviceGetHandleByUUID(prefix + bare)
        except pynvml.NVMLError:
            continue
    return None


def _card_of(device: object) -> object:
    """Return the card of which a device is an instance, or the card itself."""
    if device is None:
        return None
    try:
        if pynvml.nvmlDeviceIsMigDeviceHandle(device):
            return pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device)
    except pynvml.NVMLError:  # a driver that knows no MIG
        pass
    return device
