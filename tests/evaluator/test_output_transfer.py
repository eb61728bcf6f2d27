"""Host transfer: bytes arrive as they are, and no hostile answer about addresses is believed."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from array import array
from collections.abc import Callable
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest
from evaluator_samples import candidate
from hypothesis import given
from hypothesis import strategies as st

from actors.evaluator.ipc import shared_memory
from actors.evaluator.ipc.layout_checks import (
    ITEM_BYTES,
    MAX_LAYOUT_BYTES,
    MAX_NESTED,
    Layout,
    Leaf,
    Nest,
    Plain,
    is_dense,
    tensor_leaves,
    total_bytes,
)
from actors.evaluator.ipc.orders import Done
from actors.evaluator.ipc.runner_orders import FromRunner, OutputAddresses
from actors.evaluator.judge import Judge
from actors.evaluator.timing import output_transfer, process_memory
from actors.evaluator.timing.process_memory import MemoryPiece, ProcessMemoryError
from actors.evaluator.timing.sides import CandidateFaultError
from protocol.values import Outcome, Task, Verdict

CHILD = """
import ctypes, sys
held = ctypes.create_string_buffer(bytes(range(256)) * 64, 256 * 64)
print(ctypes.addressof(held), flush=True)
sys.stdin.readline()
sys.stdout.write(held.raw.hex())
"""
HELD = 256 * 64


def test_pieces_go_to_another_process_and_come_back() -> None:
    """More pieces than one system call takes: each arrives at its address, and no byte around."""
    with subprocess.Popen(
        [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        address = int(child.stdout.readline())
        ours = shared_memory.allocate(HELD, "ours")
        pieces = [
            MemoryPiece(begin=4 * n, size=4, address=address + 8 * n) for n in range(HELD // 8)
        ]
        os.pwrite(ours, b"\xff" * HELD, 0)
        shared_memory.make_read_only(ours)
        process_memory.write(child.pid, ours, pieces)
        back = shared_memory.allocate(HELD, "back")
        process_memory.read(child.pid, back, [MemoryPiece(begin=0, size=HELD, address=address)])
        child.stdin.write("\n")
        child.stdin.close()
        written = bytes.fromhex(child.stdout.read())
        assert os.pread(back, HELD, 0) == written
        expected = bytearray(bytes(range(256)) * 64)
        for each in range(0, HELD, 8):
            expected[each : each + 4] = b"\xff" * 4
        assert written == bytes(expected)
        for descriptor in (ours, back):
            os.close(descriptor)


@pytest.mark.parametrize("address", [0, (1 << 64) - 4096])
def test_an_address_without_memory_is_an_error(address: int) -> None:
    """An address that leads nowhere raises our error, it does not crash the judge."""
    ours = shared_memory.allocate(64, "ours")
    piece = [MemoryPiece(begin=0, size=64, address=address)]
    with pytest.raises(ProcessMemoryError):
        process_memory.read(os.getpid(), ours, piece)
    with pytest.raises(ProcessMemoryError):
        process_memory.write(os.getpid(), ours, piece)
    os.close(ours)


def test_outputs_on_a_card_are_read_in_the_arena_or_in_the_slots() -> None:
    """A view of an input lies in its slot; what would end outside of both is copied by the side."""
    leaf = Leaf(dtype="float32", shape=(64,), device="cuda")
    fixture: Any = SimpleNamespace(facts=SimpleNamespace(outputs=leaf))
    nothing: Any = None
    outputs = output_transfer.ArenaOutputs(fixture, nothing, nothing, lambda: (8000, 1024))
    outputs._size, outputs._begin = 4096, 100
    assert outputs._place(leaf, 100 + 4096 - 256) == ("arena", 4096 - 256)
    assert outputs._place(leaf, 8000) == ("slots", 0)
    assert outputs._place(leaf, 8000 + 1024 - 256) == ("slots", 768)
    for address in (99, 100 + 4096 - 255, 7999, 8000 + 1024 - 255):
        with pytest.raises(output_transfer.OutputsOutOfReachError):
            outputs._place(leaf, address)
    with pytest.raises(CandidateFaultError):
        outputs._place(Leaf(dtype="float32", shape=(64,), device="cpu"), 100)


def test_an_output_in_an_inputs_memory_is_refused_where_the_task_has_its_own() -> None:
    """A view that is returned for a copy in timed calls has saved the copy."""
    leaf = Leaf(dtype="float32", shape=(64,), device="cuda")
    pair = Nest(kind="tuple", items=(leaf, leaf))
    facts = SimpleNamespace(outputs=pair, aliases=(True, False))
    fixture: Any = SimpleNamespace(facts=facts)
    nothing: Any = None
    outputs = output_transfer.ArenaOutputs(fixture, nothing, nothing, lambda: (8000, 1024))
    outputs._size, outputs._begin = 4096, 100
    assert [("slots", 0), ("arena", 0)] == outputs._places(pair, [8000, 100])
    with pytest.raises(CandidateFaultError, match="tensor 1 of the output is in an input's memory"):
        outputs._places(pair, [100, 8000])


def test_outputs_are_read_as_they_are(torch: ModuleType) -> None:
    """Turned, scattered, conjugated, nested: in logical order they are what the module gave."""
    from actors.evaluator.children.tensors import tensor_addresses, tensor_bytes

    torch.manual_seed(0)
    same = torch.randn(4, 6)
    given = [
        same,
        same,
        same.T,
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.randn(8, 6)[:, ::2],
        torch.randn(3, 1).expand(3, 5),
        torch.randn(3, dtype=torch.complex64).conj(),
        torch.randn(3, dtype=torch.complex64).conj().imag,
        (torch.arange(5), [torch.empty(0, 3), None, 2], {"a": torch.tensor(True)}),
        torch.tensor(7.0),
    ]
    reported, answer = tensor_addresses.output_addresses(given)
    layouts, addresses = output_transfer.output_addresses(answer, len(given))
    for value, layout, begins in zip(given, layouts, addresses, strict=True):
        copied = shared_memory.allocate(total_bytes(layout), "copied")
        process_memory.read(os.getpid(), copied, output_transfer.pieces_of(layout, 0, begins))
        raw = tensor_bytes.read(_bytes(total_bytes(layout)), copied, "cpu")
        assert isinstance(raw, torch.Tensor)
        ordered = tensor_bytes.in_logical_order(raw, layout)
        got = tensor_bytes.value_of(tensor_bytes.layout_of(value), ordered, "cpu")
        for mine, theirs in zip(
            tensor_bytes.tensors_in(got), tensor_bytes.tensors_in(value), strict=True
        ):
            assert torch.equal(mine, theirs)
        os.close(copied)
    assert len(answer.layouts) < len(reported)  # equal layouts are sent once


def _bytes(size: int) -> Layout:
    return Leaf(dtype="uint8", shape=(size,))


@given(st.data())
def test_dense_strides_stay_within_their_bytes(data: st.DataObject) -> None:
    """A layout that is called dense fills its bytes and no others, whatever a candidate sends."""
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    stride = tuple(data.draw(st.lists(st.integers(0, 30), min_size=0, max_size=5)))
    leaf = Leaf(dtype="uint8", shape=shape, stride=stride)
    if not is_dense(leaf):
        return
    seen = {0}
    for size, step in zip(shape, stride, strict=True):
        seen = {begin + step * number for begin in seen for number in range(size)}
    assert seen == set(range(leaf.nbytes))


@given(st.permutations(range(4)), st.lists(st.integers(2, 4), min_size=4, max_size=4))
def test_transposed_tensors_are_dense(order: list[int], shape: list[int]) -> None:
    """An honest module may return any order of dimensions."""
    strides, filled = [0] * 4, 1
    for dimension in order:
        strides[dimension] = filled
        filled *= shape[dimension]
    assert is_dense(Leaf(dtype="float32", shape=tuple(shape), stride=tuple(strides)))


LEAVES = st.builds(
    Leaf,
    dtype=st.sampled_from([*ITEM_BYTES, "nothing"]),
    shape=st.lists(st.integers(-2, 1 << 50), max_size=3).map(tuple),
    stride=st.none() | st.lists(st.integers(-9, 1 << 50), max_size=3).map(tuple),
)
ANSWERS = st.just(Done()) | st.builds(
    OutputAddresses,
    layouts=st.lists(LEAVES, max_size=3).map(tuple),
    kinds=st.lists(st.integers(0, 4), max_size=4).map(lambda kinds: array("H", kinds).tobytes())
    | st.binary(max_size=9),
    places=st.binary(max_size=40),
)


@given(ANSWERS, st.integers(1, 4))
def test_a_hostile_answer_is_refused_or_whole(answer: FromRunner, calls: int) -> None:
    """An answer that is not refused has a layout and an address for each tensor of each call."""
    try:
        layouts, addresses = output_transfer.output_addresses(answer, calls)
    except CandidateFaultError:
        return
    assert len(layouts) == len(addresses) == calls
    for layout, begins in zip(layouts, addresses, strict=True):
        assert len(begins) == sum(1 for _leaf in tensor_leaves(layout))
        for piece in output_transfer.pieces_of(layout, 0, begins):
            assert 0 <= piece.begin < piece.begin + piece.size <= total_bytes(layout)
            struct.pack("@PN", piece.address, piece.size)


LEAF = Leaf(dtype="float32", shape=(1,))


def _nested(layout: Layout, levels: int) -> Layout:
    for _level in range(levels):
        layout = Nest(kind="list", items=(layout,))
    return layout


@pytest.mark.parametrize(
    "forged",
    [
        msgspec.structs.replace(LEAF, device="x" * MAX_LAYOUT_BYTES),
        Nest(kind="list", items=(Plain(kind="str", word="x" * MAX_LAYOUT_BYTES), LEAF)),
        _nested(LEAF, MAX_NESTED),
    ],
    ids=["a long name", "a long word", "a deep nest"],
)
def test_what_goes_on_to_the_referee_is_small(forged: Layout) -> None:
    """Names of megabytes, and nests that would overflow its stack, are refused before."""
    for layout, is_accepted in ((_nested(LEAF, 3), True), (forged, False)):
        answer = OutputAddresses(layouts=(layout,), kinds=bytes(2), places=bytes(8))
        with nullcontext() if is_accepted else pytest.raises(CandidateFaultError):
            output_transfer.output_addresses(answer, 1)


def test_where_memory_access_is_denied_the_runner_moves_its_own(
    judge: Judge, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that denies access to other processes' memory judges all the same."""

    def refused(*_arguments: object) -> None:
        raise ProcessMemoryError(1, "not permitted")

    monkeypatch.setattr(process_memory, "read", refused)
    found = judge.judge(task, candidate())
    assert isinstance(found, Verdict)
    assert found.is_correct, found.reason


FORGED_ADDRESSES = """
import array, sys
runner = sys.modules["actors.evaluator.children.runner"]
real = runner.tensor_addresses.output_addresses
def output_addresses(outputs, arena=None):
    told, said = real(outputs)
    places = array.array("Q", said.places)
    {lie}
    return told, type(said)(layouts=said.layouts, kinds=said.kinds, places=places.tobytes())
runner.tensor_addresses.output_addresses = output_addresses
"""


@pytest.mark.parametrize(
    ("lie", "outcome"),
    [
        ("places[:] = array.array('Q', [8] * len(places))", Outcome.REJECTED),
        ("places = places[:-1]", Outcome.WRONG),
        ("places[:] = array.array('Q', [places[0]] * len(places))", Outcome.WRONG),
    ],
)
def test_forged_addresses_gain_nothing(
    judged: Callable[[str], Verdict], lie: str, outcome: Outcome
) -> None:
    """Addresses without memory, too few, the same for all calls: each lie is found."""
    assert judged(candidate(before=FORGED_ADDRESSES.format(lie=lie))).verdict is outcome


CHANGING = """
import sys
runner = sys.modules["actors.evaluator.children.runner"]
real = runner.tensor_addresses.output_addresses
timed = []
def output_addresses(outputs, arena=None):
    timed.append(True)
    return real(outputs)
runner.tensor_addresses.output_addresses = output_addresses
def change(x):
    if timed:
        x.data.view(-1)[-1:].zero_()
"""


def test_inputs_that_only_timed_calls_change_are_seen(judged: Callable[[str], Verdict]) -> None:
    """A timed call that changes its inputs is `wrong`, however well it behaved in the checks."""
    forward = "y = torch.relu(x * self.scale + y) + self.bias\nchange(x)\nreturn y"
    found = judged(candidate(before=CHANGING, forward=forward))
    assert found.verdict is Outcome.WRONG
    assert "input 0 is changed" in found.reason
