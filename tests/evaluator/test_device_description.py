"""What is said about a device, on a stand-in for torch's properties of it."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType, SimpleNamespace

import pynvml
import pytest

from actors.evaluator.devices import device_description

WHOLE = "NVIDIA H200"


@pytest.mark.parametrize(
    ("name", "multiprocessors", "peak"),
    [(WHOLE, 132, "4800 GB/s"), (f"{WHOLE} MIG 1g.18gb", 16, None)],
)
def test_a_part_of_a_card_has_not_its_peak(
    torch: ModuleType,
    name: str,
    multiprocessors: int,
    peak: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An instance with an eighth of the memory's channels has not the bandwidth of all."""
    card = SimpleNamespace(
        name=name, major=9, minor=0, multi_processor_count=multiprocessors, total_memory=1 << 34
    )
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _device: card)
    device = device_description.cuda_device()
    assert device.facts.get("memory bandwidth, by its maker") == peak
    assert device.facts["multiprocessors"] == str(multiprocessors)
    # Rates are stored by the fingerprint: a card and its parts never share them.
    assert device.fingerprint.startswith(f"{name}; ")


def test_two_drivers_are_two_devices_also_under_wsl2(
    torch: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel has no file with the version there; the driver's library tells it."""
    card = SimpleNamespace(
        name=WHOLE, major=9, minor=0, multi_processor_count=132, total_memory=1 << 34
    )
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _device: card)
    monkeypatch.setattr(device_description, "DRIVER_VERSION", tmp_path / "version")
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    found = set()
    for version in ("560.94", "566.36"):
        monkeypatch.setattr(pynvml, "nvmlSystemGetDriverVersion", lambda: version)  # noqa: B023
        device = device_description.cuda_device()
        assert device.facts["driver"] == version
        found.add(device.fingerprint)
    assert len(found) == 2


@pytest.mark.parametrize(
    ("visible", "kind"),
    [(None, "cuda"), ("0", "cuda"), (" 1,0", "cuda"), ("MIG-1c2d", "cuda"), ("GPU-89", "cuda")]
    + [(hidden, "cpu") for hidden in ("", " ", "-1", "NoDevFiles", "none")],
)
def test_a_machine_whose_cards_are_hidden_judges_on_its_processor(
    visible: str | None, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CUDA_VISIBLE_DEVICES hides them from the judge's processes, too."""
    monkeypatch.setattr(device_description, "GPU_NODES", (str(tmp_path),))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert device_description.default_kind() == kind
