"""The allocator of an arena in C: pieces lie in the arena, and no caller waits."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

BEGIN, SIZE = 1 << 40, 1 << 20
BEYOND = 7 << 30  # where the driver of these tests allocates


@pytest.fixture
def allocator(torch: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The two functions, beside a driver that counts."""
    from actors.evaluator.children.tensors import arena_allocator, cuda_vmm

    beyond: list[int] = []
    freed: list[int] = []

    def driver_allocate(place: ctypes._Pointer[ctypes.c_ulonglong], size: int) -> int:
        place[0] = BEYOND
        beyond.append(size)
        return 0

    def driver_free(place: int) -> int:
        freed.append(place)
        return 0

    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_ulonglong), ctypes.c_size_t)
    functions = (
        kind(driver_allocate),
        ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_ulonglong)(driver_free),
    )
    places = tuple(ctypes.cast(each, ctypes.c_void_p).value for each in functions)
    monkeypatch.setattr(cuda_vmm, "private_functions", lambda: places)
    if not arena_allocator.load(tmp_path):
        pytest.skip("this machine has no C compiler")
    addresses = arena_allocator.native_functions(BEGIN, SIZE)
    assert addresses is not None
    void = ctypes.c_void_p
    return SimpleNamespace(
        allocate=ctypes.CFUNCTYPE(void, ctypes.c_size_t, ctypes.c_int, void)(addresses[0]),
        free=ctypes.CFUNCTYPE(None, void, ctypes.c_size_t, ctypes.c_int, void)(addresses[1]),
        beyond=beyond,
        freed=freed,
        functions=functions,
        folder=tmp_path,
    )


def test_pieces_lie_in_the_arena_and_do_not_overlap(allocator: SimpleNamespace) -> None:
    """Each piece is aligned and its own; a freed one is given again to the same size only."""
    sizes = [1, 511, 512, 513, 4096]
    places = [allocator.allocate(size, 0, None) for size in sizes]
    ends = [place + size for place, size in zip(places, sizes, strict=True)]
    assert places[0] == BEGIN
    assert all(place % 512 == 0 for place in places)
    assert all(end <= place for end, place in zip(ends, places[1:], strict=False))
    allocator.free(places[3], 513, 0, None)
    assert allocator.allocate(512, 0, None) == places[4] + 4096
    assert allocator.allocate(513, 0, None) == places[3]
    assert not list(allocator.folder.iterdir())


def test_beyond_the_arena_the_driver_is_asked(allocator: SimpleNamespace) -> None:
    """A full arena is no error: such pieces come from the driver, and go back to it."""
    assert allocator.allocate(SIZE, 0, None) == BEGIN
    assert allocator.allocate(512, 0, None) == BEYOND
    allocator.free(BEYOND, 512, 0, None)
    allocator.free(BEGIN, SIZE, 0, None)
    assert (allocator.beyond, allocator.freed) == ([512], [BEYOND])


def test_it_never_waits_for_the_interpreter(allocator: SimpleNamespace) -> None:
    """A thread allocates while another one holds the interpreter's lock for good.

    `PyDLL` keeps the lock during its call: `pthread_join` waits there for a thread of C that
    allocates.  If allocating needed the interpreter, both would wait for ever.
    """
    libc = ctypes.PyDLL(None)
    thread, result = ctypes.c_ulong(), ctypes.c_void_p()
    # A thread of C that begins in the allocator: its argument is the size.
    address = ctypes.cast(allocator.allocate, ctypes.c_void_p)
    assert not libc.pthread_create(ctypes.byref(thread), None, address, ctypes.c_void_p(512))
    assert not libc.pthread_join(thread, ctypes.byref(result))
    assert result.value == BEGIN


def test_memory_that_torch_keeps_is_given_back_before_a_card_is_full(
    torch: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inputs of gigabytes fit beside what earlier draws have left in torch's cache."""
    from actors.evaluator.children.tensors import cuda_vmm

    freed: list[bool] = []

    def driver(name: str, *arguments: Any) -> None:
        if name == "cuMemCreate" and not freed:
            raise cuda_vmm.SharedDeviceMemoryError("out of memory")
        if name == "cuMemExportToShareableHandle":
            arguments[0]._obj.value = os.open(os.devnull, os.O_RDONLY)

    monkeypatch.setattr(torch.cuda, "current_stream", lambda: None)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: freed.append(True))
    monkeypatch.setattr(cuda_vmm, "_rounded", lambda size: size)
    monkeypatch.setattr(cuda_vmm, "_properties", lambda: ctypes.c_int(0))
    monkeypatch.setattr(cuda_vmm, "_call", driver)
    os.close(cuda_vmm.allocate(100))
    assert freed == [True]
