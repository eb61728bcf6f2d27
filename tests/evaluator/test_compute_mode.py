"""A card that serves one process only is refused in one line, on a stand-in for the driver."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from actors.evaluator import __main__ as command
from actors.evaluator.devices.device_info import DeviceInfo
from actors.evaluator.ipc.referee_orders import DeviceDescribed
from actors.evaluator.sandbox.scratch import Scratch
from actors.evaluator.sandbox.zygote_client import JudgeUnavailableError
from protocol.values import Device

DEFAULT, EXCLUSIVE = pynvml.NVML_COMPUTEMODE_DEFAULT, pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS


def set_modes(monkeypatch: pytest.MonkeyPatch, *modes: int) -> None:
    """Have the driver list a card, GPU-0, GPU-1 …, for each mode; below 0 it does not tell it."""

    def mode(card: int) -> int:
        if modes[card] < 0:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return modes[card]

    def unsupported(*_arguments: object) -> int:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    answers: dict[str, Any] = {
        "Init": lambda: None,
        "DeviceGetCount": lambda: len(modes),
        "DeviceGetHandleByIndex": int,
        "DeviceGetHandleByUUID": lambda uuid: int(uuid.removeprefix("GPU-")),
        "DeviceIsMigDeviceHandle": lambda _card: 0,
        "DeviceGetComputeMode": mode,
        "DeviceGetMaxClockInfo": unsupported,
    }
    for name, answer in answers.items():
        monkeypatch.setattr(pynvml, f"nvml{name}", answer)


def described(tmp_path: Path, uuid: str) -> Device:
    """Return the device of a judge whose child finds the card `uuid`."""
    device = Device(kind="cuda", name="a card", fingerprint="a card")
    answer: tuple[DeviceDescribed, list[int]] = (DeviceDescribed(device=device, uuid=uuid), [])
    child = SimpleNamespace(ask=lambda *_order: answer, kill=lambda: None)
    parts: Any = SimpleNamespace(
        kind="cuda",
        limits=SimpleNamespace(import_s=1.0),
        confinement=lambda *_args, **_flags: None,
        ensure_started=lambda: None,
        spawn=lambda *_args, **_flags: child,
    )
    return DeviceInfo(parts, parts, Scratch(tmp_path / "scratch")).device


def test_a_judge_refuses_its_card_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A candidate's process would get no context there: it must not be blamed for that."""
    set_modes(monkeypatch, DEFAULT, EXCLUSIVE, -1)
    assert described(tmp_path, "0").name == "a card"
    assert described(tmp_path, "2").name == "a card"
    with pytest.raises(JudgeUnavailableError, match="compute mode Exclusive_Process"):
        described(tmp_path, "1")


@pytest.mark.parametrize(
    ("modes", "is_refused"),
    [((EXCLUSIVE, EXCLUSIVE), True), ((EXCLUSIVE, DEFAULT), False), ((-1,), False), ((), False)],
)
def test_a_run_is_refused_before_it_starts(
    modes: tuple[int, ...],
    is_refused: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The supervisor asks an evaluator, and shows its last line; unknown modes refuse nothing."""
    set_modes(monkeypatch, *modes)
    arguments = ["evaluator", "--device", "cuda", "--min-sandbox", "1"]
    monkeypatch.setattr(sys, "argv", arguments)
    if not is_refused:
        assert command.main() == 0
        return
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == 2
    assert "in compute mode Exclusive_Process" in capsys.readouterr().err.splitlines()[-1]
