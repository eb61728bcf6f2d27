"""Typed bytes: values arrive as sent, and a hostile child's frames are refused without damage."""

from __future__ import annotations

import os
import socket
from types import ModuleType

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.evaluator.ipc import layout_checks, logs, shared_memory
from actors.evaluator.ipc.channel import (
    HEAD,
    Channel,
    ChannelClosedError,
    ChannelTimeoutError,
    MalformedFrameError,
)
from actors.evaluator.ipc.layout_checks import Leaf, Nest, Plain
from actors.evaluator.ipc.orders import Done
from actors.evaluator.ipc.runner_orders import FromRunner, SetInputs, ToRunner, WriteTensors

SHAPES = st.lists(st.integers(0, 5), max_size=4).map(tuple)
LEAVES = st.builds(Leaf, dtype=st.sampled_from(sorted(layout_checks.ITEM_BYTES)), shape=SHAPES)
LAYOUTS = st.recursive(
    LEAVES | st.builds(Plain, kind=st.just("int"), word=st.integers(-9, 9).map(str)),
    lambda inner: st.lists(inner, max_size=3).map(
        lambda items: Nest(kind="tuple", items=tuple(items))
    ),
    max_leaves=6,
)


@given(LAYOUTS)
def test_bytes_of_different_tensors_never_overlap(any_layout: layout_checks.Layout) -> None:
    """Each leaf has an aligned range of its own, and the total covers all ranges."""
    places = layout_checks.offsets(any_layout)
    for leaf, start, end in zip(
        layout_checks.tensor_leaves(any_layout), places, places[1:], strict=False
    ):
        assert start % layout_checks.ALIGNMENT == 0
        assert start + leaf.nbytes <= end
    assert layout_checks.total_bytes(any_layout) == places[-1]


@given(st.integers(1, 10**6), st.sampled_from(sorted(layout_checks.ITEM_BYTES)))
def test_slots_begin_at_all_places_of_a_page(count: int, dtype: str) -> None:
    """Where a process has its outputs favours no side: a call's time depends on both places."""
    inputs = Leaf(dtype=dtype, shape=(count,))
    size = layout_checks.slot_bytes(inputs)
    assert size >= max(inputs.nbytes, layout_checks.SLOT_ALIGNMENT)
    begins = [slot * size for slot in range(8)]
    assert all(begin % layout_checks.SLOT_ALIGNMENT == 0 for begin in begins)
    if inputs.nbytes > layout_checks.PAGE_BYTES:
        assert 8 == len({begin % layout_checks.PAGE_BYTES for begin in begins})


@given(LAYOUTS, LAYOUTS)
def test_only_equal_layouts_do_not_differ(
    left: layout_checks.Layout, right: layout_checks.Layout
) -> None:
    """`difference` is None exactly for equal layouts."""
    assert layout_checks.difference(left, left) is None
    assert (layout_checks.difference(left, right) is None) == (left == right)


def test_values_arrive_as_they_were_sent(torch: ModuleType) -> None:
    """Every dtype, odd strides, empty and zero-dimensional tensors, nesting and plain values."""
    from actors.evaluator.children.tensors import tensor_bytes

    torch.manual_seed(0)
    value = {
        "odd": [torch.randn(3, 5).T, torch.empty(0, 4), torch.tensor(7.5)],
        "plain": (1, -2.5, True, None, "word", torch.float16),
        **{
            name: torch.randint(0, 2, (4, 3)).to(getattr(torch, name))
            for name in layout_checks.ITEM_BYTES
        },
    }
    shape = tensor_bytes.layout_of(value)
    memory = shared_memory.allocate(layout_checks.total_bytes(shape), "test")
    try:
        tensor_bytes.write(value, memory)
        got = tensor_bytes.read(shape, memory, "cpu")
    finally:
        os.close(memory)
    assert got["plain"] == value["plain"]
    assert got["odd"][0].stride() == value["odd"][0].stride()
    for sent, came in zip(
        tensor_bytes.tensors_in(value), tensor_bytes.tensors_in(got), strict=True
    ):
        assert sent.dtype == came.dtype
        assert sent.shape == came.shape
        wide = torch.complex128 if sent.is_complex() else torch.float64
        assert torch.equal(sent.to(wide), came.to(wide))


@pytest.mark.parametrize("transposed", [False, True])
def test_many_values_are_filled_in_place(torch: ModuleType, *, transposed: bool) -> None:
    """Values of all strides and dtypes get new contents in the same storage."""
    from actors.evaluator.children.tensors import tensor_bytes

    def draw(seed: int) -> list[tuple[object, ...]]:
        torch.manual_seed(seed)
        matrix = torch.randn(3, 5).T if transposed else torch.randn(5, 3)
        return [(matrix + call, [torch.randint(0, 9, (call + 1,)) > 4], 2.5) for call in range(3)]

    old, new = draw(1), draw(2)
    layouts = [tensor_bytes.layout_of(value) for value in new]
    storage = [tensor.data_ptr() for tensor in tensor_bytes.tensors_in(old)]
    versions = [tensor._version for tensor in tensor_bytes.tensors_in(old)]
    memory = shared_memory.allocate(sum(map(layout_checks.total_bytes, layouts)), "test")
    try:
        place = 0
        for value, shape in zip(new, layouts, strict=True):
            part = shared_memory.allocate(layout_checks.total_bytes(shape), "part")
            tensor_bytes.write(value, part)
            os.pwrite(memory, os.pread(part, layout_checks.total_bytes(shape), 0), place)
            place += layout_checks.total_bytes(shape)
            os.close(part)
        tensor_bytes.fill(old, layouts, memory)
    finally:
        os.close(memory)
    for came, sent in zip(tensor_bytes.tensors_in(old), tensor_bytes.tensors_in(new), strict=True):
        assert torch.equal(came, sent)
    assert [tensor.data_ptr() for tensor in tensor_bytes.tensors_in(old)] == storage
    # The version counter stays: a cache that trusts it must be wrong, too.
    assert [tensor._version for tensor in tensor_bytes.tensors_in(old)] == versions


def test_too_few_bytes_are_an_error(torch: ModuleType) -> None:
    """Missing input bytes are not replaced by zeros."""
    from actors.evaluator.children.tensors import tensor_bytes

    value = torch.ones(100)
    memory = shared_memory.allocate(64, "test")
    try:
        with pytest.raises(tensor_bytes.UntransferableError):
            tensor_bytes.fill([value], [tensor_bytes.layout_of(value)], memory)
    finally:
        os.close(memory)


def test_an_output_that_does_not_fit_is_not_written(torch: ModuleType) -> None:
    """An output larger than its memory is refused before a byte is written."""
    from actors.evaluator.children.tensors import tensor_bytes

    memory = shared_memory.allocate(64, "test")
    try:
        with pytest.raises(tensor_bytes.UntransferableError):
            tensor_bytes.write(torch.ones(1000), memory, 64)
    finally:
        os.close(memory)


def test_shared_memory_can_not_be_shrunk() -> None:
    """A child that truncates shared memory would kill its reader, so a seal forbids it."""
    memory = shared_memory.allocate(4096, "test")
    try:
        with pytest.raises(PermissionError):
            os.ftruncate(memory, 0)
    finally:
        os.close(memory)


def pair(*, descriptors: bool = False) -> tuple[socket.socket, Channel[FromRunner | ToRunner]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    return theirs, Channel(ours, FromRunner | ToRunner, descriptors=descriptors)


def test_an_order_arrives_whole_with_its_descriptors() -> None:
    """Orders and their descriptors arrive in order, however the stream is split."""
    theirs, channel = pair(descriptors=True)
    sender: Channel[Done] = Channel(theirs, Done)
    numbers = [os.memfd_create("a"), os.memfd_create("b")]
    big = SetInputs(slot=1, inputs=Nest(kind="list", items=(Leaf(dtype="bool", shape=(1,)),) * 500))
    sender.send(big, numbers[:1])
    sender.send(WriteTensors(what="output"), numbers[1:])
    found = []
    while len(found) < 2:
        channel.read_available()
        while (order := channel.next_order()) is not None:
            found.append(order)
    assert [order for order, _carried in found] == [big, WriteTensors(what="output")]
    for (_order, carried), number in zip(found, numbers, strict=True):
        assert os.fstat(carried[0]).st_ino == os.fstat(number).st_ino
        os.close(carried[0])
        os.close(number)
    sender.close()
    channel.close()


@given(st.binary(min_size=5, max_size=64))
def test_random_bytes_are_malformed_or_incomplete(data: bytes) -> None:
    """Bytes that are not a frame raise `MalformedFrameError` or wait for more, never an order."""
    theirs, channel = pair()
    theirs.send(b"\xff" + data)
    channel.read_available()
    try:
        assert channel.next_order() is None
    except MalformedFrameError:
        pass
    finally:
        theirs.close()
        channel.close()


@pytest.mark.parametrize(
    "frame",
    [
        HEAD.pack(1 << 31, 0),
        HEAD.pack(1, 3) + b"\xc0",
        HEAD.pack(1, 0) + b"\xc1",
        HEAD.pack(2000, 0) + b"\x91" * 2000,
        HEAD.pack(1 + len(body := msgspec.msgpack.encode({"type": "Unknown"})), 0) + b"\x81" + body,
    ],
)
def test_hostile_frames_are_malformed(frame: bytes) -> None:
    """Frames that are too long, with descriptors, invalid, too deep or unknown are refused."""
    theirs, channel = pair()
    theirs.send(frame)
    channel.read_available()
    with pytest.raises(MalformedFrameError):
        channel.next_order()
    theirs.close()
    channel.close()


def test_a_child_that_does_not_read_can_not_block_the_judge() -> None:
    """Sending to a child that never reads times out; to a dead one it raises another error."""
    theirs, channel = pair()
    order = SetInputs(slot=0, inputs=Plain(kind="str", word="x" * 3_000_000))
    with pytest.raises(ChannelTimeoutError):
        channel.send(order, seconds=0.1)
    theirs.close()
    with pytest.raises(ChannelClosedError):
        channel.send(order, seconds=0.1)
    channel.close()


@given(st.lists(st.binary(max_size=200), max_size=30))
def test_output_keeps_the_beginning_and_the_end(parts: list[bytes]) -> None:
    """The stored text is bounded and has the beginning and the end of the output."""
    output = logs.BoundedOutput(64)
    for part in parts:
        output.append(part)
    whole = b"".join(parts).decode("utf-8", "replace")
    text = output.text()
    assert len(text) <= 64 + 40
    if len(b"".join(parts)) <= 64:
        assert text == whole


@given(st.text())
def test_a_cleaned_log_has_no_control_bytes(text: str) -> None:
    """A candidate's output can't move a terminal's cursor."""
    cleaned = logs.clean_log(f"\x1b[2J{text}\x9b31m")
    assert all(
        char in "\n\t" or (ord(char) >= 32 and not 127 <= ord(char) < 160) for char in cleaned
    )


def test_paths_of_this_machine_are_cut_from_logs() -> None:
    """A log has the file names that an agent knows."""
    header = "/opt/venv/lib/python3.11/site-packages/torch/a.h"
    log = f"/run/x/candidate-1/kernel.cpp:3: error: in {header}"
    assert logs.clean_log(log, ["/run/x/candidate-1"]) == "kernel.cpp:3: error: in torch/a.h"
