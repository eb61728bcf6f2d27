"""The device check after an abnormal end."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from actors.evaluator.devices import device_health
from actors.evaluator.devices.device_health import DeviceHealth
from actors.evaluator.ipc.orders import Done
from actors.evaluator.sandbox.child_client import ChildFailure
from actors.evaluator.sandbox.scratch import Scratch
from actors.evaluator.sandbox.zygote_client import DeviceQuarantinedError

GIB = 1 << 30


class FakeChild:
    """A process that answers the device check."""

    def __init__(self, answer: object) -> None:
        self._answer = answer

    def ask(self, _order: object, _seconds: float) -> object:
        return self._answer

    def kill(self) -> None:
        """Nothing to end."""


def health(tmp_path: Path, used: list[int], answer: object, lines: list[str]) -> DeviceHealth:
    """Return the health of a card whose memory in use is read from `used`, the last one again."""

    def memory_used() -> int:
        return used.pop(0) if len(used) > 1 else used[0]

    parts: Any = SimpleNamespace(
        kind="cuda",
        confinement=lambda *_args, **_flags: None,
        spawn=lambda *_args, **_flags: FakeChild(answer),
        sensors=SimpleNamespace(memory_used=memory_used),
    )
    return DeviceHealth(parts, parts, Scratch(tmp_path / "scratch"), parts, lines.append)


@pytest.fixture(autouse=True)
def _short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_health, "SETTLE_S", 0.05)


def test_memory_that_stays_in_use_is_noted_and_no_fault(tmp_path: Path) -> None:
    """The reference's process keeps 3 GiB more after the check: its card is not quarantined."""
    lines: list[str] = []
    card = health(tmp_path, [4 * GIB, 7 * GIB], (Done(), []), lines)
    card.before_candidate()
    card.after_abnormal_end()
    card.before_candidate()
    assert ["3072 MiB more of the card's memory are in use than before a candidate"] == lines


def test_a_card_that_gets_a_known_kernel_wrong_is_quarantined(tmp_path: Path) -> None:
    """Whatever its memory says; and it stays quarantined until the kernel is right again."""
    failure = ChildFailure(how="exit", number=1)
    card = health(tmp_path, [GIB], failure, [])
    card.before_candidate()
    with pytest.raises(DeviceQuarantinedError, match="a known kernel fails"):
        card.after_abnormal_end()
    with pytest.raises(DeviceQuarantinedError, match="a known kernel fails"):
        card.before_candidate()
