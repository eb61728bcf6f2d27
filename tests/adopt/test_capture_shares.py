"""Under a cap of bytes the calls that promise most are recorded; a file has no more than them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from actors.adopt.model.call_layouts import CallKind, call_kind
from actors.adopt.model.call_recorder import KindOfCalls
from actors.adopt.stage.errors import AdoptError
from actors.adopt.stage.stage_folder import StageFolder
from actors.adopt.take.capture_shares import OVERHEAD_BYTES, capture_shares
from actors.adopt.take.captures import CaptureWriter, capturing
from protocol.layouts import Leaf, Nest

MIB = 1 << 20


def kind(size: int) -> CallKind:
    return CallKind(layout=Nest(kind="tuple", items=(Leaf(dtype="uint8", shape=(size,)),)))


def calls(size: int, count: int = 9) -> KindOfCalls:
    return KindOfCalls(kind=kind(size), calls=count, call_bytes=size)


def test_each_group_gets_one_call_before_any_gets_two() -> None:
    """The most promising first; what is too large leaves its room to others."""
    wanted = {"best": [calls(4 * MIB), calls(MIB)], "next": [calls(4 * MIB)]}
    shares, is_whole = capture_shares(wanted, 3, 10 * MIB)
    assert ({kind(4 * MIB): 1, kind(MIB): 1}, {kind(4 * MIB): 1}) == tuple(shares.values())
    assert not is_whole
    shares, _ = capture_shares(wanted, 3, 5 * MIB)
    assert ({kind(4 * MIB): 1}, {}) == tuple(shares.values())
    shares, is_whole = capture_shares({"once": [calls(MIB, 3)]}, 3, 1 << 40)
    assert ({kind(MIB): 1}, True) == (shares["once"], is_whole)


GROUPS = st.lists(st.lists(st.integers(1, 4 * MIB), max_size=4, unique=True), max_size=5)


@given(GROUPS, st.integers(0, 30 * MIB))
def test_recorded_calls_fit_under_the_cap(sizes: list[list[int]], room: int) -> None:
    """Whatever the sizes are: all within the room, and where some were left out it is said."""
    wanted = {str(n): [calls(size) for size in each] for n, each in enumerate(sizes)}
    shares, is_whole = capture_shares(wanted, 3, room)
    taken = [
        each.call_bytes + OVERHEAD_BYTES
        for name, kinds in wanted.items()
        for each in kinds
        for _ in range(shares[name].get(each.kind, 0))
    ]
    assert sum(taken) <= room
    assert is_whole == (len(taken) == 3 * sum(map(len, sizes)))


class Part(torch.nn.Module):
    """Returns a view of a large tensor."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x + torch.zeros(1000, 64))[:2]


def recorded(folder: StageFolder) -> int:
    """Return the bytes that recording one call of Part takes."""
    model, x = torch.nn.Sequential(Part()), torch.randn(64)
    writer = CaptureWriter(folder, MIB)
    with torch.no_grad():
        groups = {"part": (["0"], {call_kind(model[0], (x,), {}): 1})}
        with capturing(model, groups, writer):
            model(x)
    return writer.bytes


def test_a_view_is_stored_without_the_rest_of_its_memory(tmp_path: Path) -> None:
    """Two rows of a thousand take the room of two."""
    assert 0 < recorded(StageFolder(tmp_path)) < 8000


def test_a_refused_group_gives_its_bytes_back(tmp_path: Path) -> None:
    """Its parts, which are looked at next, have the room that there was before it."""
    model, x = torch.nn.Sequential(Part()), torch.randn(64)
    writer = CaptureWriter(StageFolder(tmp_path), MIB)
    groups = {"part": (["0"], {call_kind(model[0], (x,), {}): 1})}
    with capturing(model, groups, writer) as sets:
        model(x)
    assert writer.room < MIB
    writer.discard("part", sets["part"])
    assert (MIB, []) == (writer.room, list((tmp_path / "captures").iterdir()))


def test_a_full_disk_is_said_and_leaves_no_half_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line that names the file; the part that was written is removed."""

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(AdoptError, match=r"can't write .*set-0.pt: No space left on device"):
        recorded(StageFolder(tmp_path))
    assert [] == [file for file in tmp_path.rglob("*") if file.is_file()]
