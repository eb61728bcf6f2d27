"""The sensors of a card and of a MIG instance, on a stand-in for the driver."""

from __future__ import annotations

from types import SimpleNamespace

import pynvml
import pytest

from actors.evaluator.devices.sensors import GpuSensors

CARD, INSTANCE = "card", "instance"
UUIDS = {"GPU-11-22": CARD, "MIG-33-44": INSTANCE}


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver with one card and an instance of it, whose clocks are the card's alone."""

    def by_uuid(uuid: str) -> str:
        if uuid not in UUIDS:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return UUIDS[uuid]

    def clocks_of(handle: str, *_what: int) -> int:
        if handle != CARD:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return 40

    used = {CARD: 70, INSTANCE: 7}
    answers = {
        "Init": lambda: None,
        "DeviceGetHandleByUUID": by_uuid,
        "DeviceIsMigDeviceHandle": lambda handle: handle == INSTANCE,
        "DeviceGetDeviceHandleFromMigDeviceHandle": lambda _handle: CARD,
        "DeviceGetCurrentClocksThrottleReasons": lambda handle: clocks_of(handle) and 0,
        "DeviceGetClockInfo": clocks_of,
        "DeviceGetTemperature": clocks_of,
        "DeviceGetMemoryInfo": lambda handle: SimpleNamespace(used=used[handle]),
    }
    for name, answer in answers.items():
        monkeypatch.setattr(pynvml, f"nvml{name}", answer)


@pytest.mark.parametrize(("uuid", "used"), [("11-22", 70), ("GPU-11-22", 70), ("33-44", 7)])
@pytest.mark.usefixtures("driver")
def test_an_instance_has_its_own_memory_and_the_clocks_of_its_card(uuid: str, used: int) -> None:
    """CUDA tells the UUID of a MIG instance, by which the driver knows no card."""
    sensors = GpuSensors(uuid)
    reading = sensors.read()
    assert reading is not None
    assert (reading.celsius, reading.throttled) == (40, "")
    assert sensors.memory_used() == used


@pytest.mark.usefixtures("driver")
def test_one_sensor_that_is_missing_hides_no_throttling(monkeypatch: pytest.MonkeyPatch) -> None:
    """A virtual card has no temperature; its groups at lowered clocks are known all the same."""

    def no_temperature(*_what: object) -> int:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    power_cap = pynvml.nvmlClocksThrottleReasonSwPowerCap
    monkeypatch.setattr(pynvml, "nvmlDeviceGetTemperature", no_temperature)
    monkeypatch.setattr(
        pynvml, "nvmlDeviceGetCurrentClocksThrottleReasons", lambda _card: power_cap
    )
    reading = GpuSensors("11-22").read()
    assert reading is not None
    assert reading.readable() == "40 MHz, memory 40 MHz, throttled: at its power limit"


@pytest.mark.parametrize(
    ("bits", "told"),
    [
        (0x48, "too hot"),
        (0x88, "braked by its power supply"),
        (0x8, "slowed down by hardware"),
        (0x20, "too hot"),
        (0x4, "at its power limit"),
        (0x1 | 0x2 | 0x10 | 0x100, ""),  # idle, clocks that were set, other cards' or a display's
    ],
)
@pytest.mark.usefixtures("driver")
def test_the_cause_of_lowered_clocks_is_told(
    bits: int, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bits are those of nvml.h; the driver sets 0x8 together with 0x40 and 0x80."""
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCurrentClocksThrottleReasons", lambda _card: bits)
    reading = GpuSensors("11-22").read()
    assert reading is not None
    assert reading.throttled == told


@pytest.mark.usefixtures("driver")
def test_an_unknown_device_has_no_sensors() -> None:
    """It is judged all the same."""
    sensors = GpuSensors("55-66")
    assert sensors.read() is None
    assert sensors.memory_used() is None
    assert sensors.limits_text() == ""
