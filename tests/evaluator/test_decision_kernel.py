"""The kernel that decides inputs on a card, compiled for the host: it does what hashlib says."""

from __future__ import annotations

import ctypes
import hashlib
import os
import random
import subprocess
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

# Each thread of a block is one of the host, and blocks follow each other.
HOST = r"""
#include <barrier>
#include <thread>
#include <vector>
#define __device__
#define __global__
#define __noinline__
#define __shared__ static
struct Place { int x; };
static Place gridDim, blockDim;
static thread_local Place blockIdx, threadIdx;
static std::barrier<>* block_barrier;
static void __syncthreads() { block_barrier->arrive_and_wait(); }
static void __threadfence() {}
static unsigned atomicAdd(unsigned* place, unsigned value) {
    return __atomic_fetch_add(place, value, __ATOMIC_SEQ_CST);
}
#include "decide.cu"
extern "C" void run(int blocks, int threads, void** given) {
    auto output = *(const unsigned char**)given[0];
    auto bytes = *(int*)given[1], first_leaf = *(int*)given[2], is_last = *(int*)given[3];
    auto state = *(unsigned**)given[4];
    auto mine = *(unsigned char**)given[5];
    auto other = *(const unsigned char**)given[6];
    auto spans = *(const int**)given[7];
    auto count = *(int*)given[8], word_bytes = *(int*)given[9], parts = *(int*)given[10];
    gridDim.x = blocks;
    blockDim.x = threads;
    for (int block = 0; block < blocks; ++block) {
        std::barrier<> barrier(threads);
        block_barrier = &barrier;
        std::vector<std::thread> running;
        for (int thread = 0; thread < threads; ++thread)
            running.emplace_back([=, &barrier] {
                blockIdx.x = block;
                threadIdx.x = thread;
                decide(output, bytes, first_leaf, is_last, state, mine, other, spans, count,
                       word_bytes, parts);
                barrier.arrive_and_drop();
            });
        for (std::thread& thread : running) thread.join();
    }
}
"""


@pytest.fixture(scope="module")
def host_kernel(torch: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The kernel's own source as a function of the host, called as a launch is."""
    from actors.evaluator.children import decision_kernel

    folder = tmp_path_factory.mktemp("kernel")
    (folder / "decide.cu").write_text(decision_kernel.SOURCE, encoding="utf-8")
    (folder / "host.cpp").write_text(HOST, encoding="utf-8")
    command = ["g++", "-std=c++20", "-O1", "-w", "-shared", "-fPIC", "-pthread", "-o", "host.so"]
    subprocess.run([*command, "host.cpp"], cwd=folder, check=True)
    library = ctypes.CDLL(str(folder / "host.so"))

    return lambda blocks, arguments: library.run(blocks, decision_kernel.THREADS, arguments)


def digest_of(outputs: list[bytes]) -> bytes:
    """Return what decides, by hashlib."""
    leaves = [raw[at : at + 64] for raw in outputs for at in range(0, len(raw), 64)]
    sums = [0] * 8
    for number, leaf in enumerate(leaves):
        digest = hashlib.blake2s(leaf, node_offset=number).digest()
        for lane in range(8):
            word = int.from_bytes(digest[4 * lane : 4 * lane + 4], "little")
            sums[lane] = (sums[lane] + word) % (1 << 32)
    total = b"".join(lane.to_bytes(4, "little") for lane in sums)
    return hashlib.blake2s(total, node_depth=1).digest()


@pytest.mark.parametrize(
    ("sizes", "shift", "word_bytes", "parts"),
    [
        ([256], 0, 4, 32),
        ([100, 7, 64 * 128 * 2 + 5], 1, 8, 32),  # parts of leaves, some blocks, any address
        ([64], 0, 16, 1),
        ([], 0, 4, 32),
    ],
)
def test_the_kernel_decides_as_its_definition_says(
    torch: ModuleType,
    host_kernel: Any,
    sizes: list[int],
    shift: int,
    word_bytes: int,
    parts: int,
) -> None:
    """All bytes of all outputs decide; only the words of the spans are chosen."""
    from actors.evaluator.children import decision_kernel

    rng = random.Random(len(sizes))
    outputs = [rng.randbytes(size) for size in sizes]
    raws = [
        torch.frombuffer(bytearray(b"?" * shift + raw), dtype=torch.uint8)[shift:]
        for raw in outputs
    ]
    words = 200
    pairs = [
        tuple(torch.full((words * word_bytes,), draw, dtype=torch.uint8) for draw in (0, 1))
        for _call in range(2)
    ]
    spans = [slice(0, 64, 1), slice(70, 190, 3)]
    slots = decision_kernel.DecidedSlots(host_kernel, pairs, spans, word_bytes, parts)
    slots.decide(1, raws)
    digest = digest_of(outputs)
    expected = [0] * words
    for span in spans:
        for place, word in enumerate(range(span.start, span.stop, span.step)):
            expected[word] = digest[place % parts] >> 7
    mine = pairs[1][0].view(words, word_bytes).tolist()
    assert [[each] * word_bytes for each in expected] == mine
    assert not pairs[0][0].any()


def test_a_referee_compiles_no_kernel_that_an_earlier_one_has_compiled(
    torch: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes some tenths of a second of each task's first verdict."""
    from actors.evaluator.children import decision_kernel, timing_memory
    from actors.evaluator.children.tensors.tensor_bytes import layout_of
    from actors.evaluator.ipc import shared_memory
    from actors.evaluator.ipc.referee_orders import PrepareSlots

    monkeypatch.setattr(decision_kernel, "program", lambda: b"compiled")
    task: Any = SimpleNamespace(inputs=lambda _seed, _kind="plain": [torch.randn(8)])
    layout = layout_of([torch.randn(8)])
    for known, is_on_card, expected in (
        (b"", True, b"compiled"),
        (b"known", True, b"known"),
        (b"", False, b""),
    ):
        on_card = SimpleNamespace(is_on_card=is_on_card, close=lambda: None)
        monkeypatch.setattr(timing_memory, "SlotMemory", lambda *_, made=on_card: made)
        memory = timing_memory.TimingMemory(task, layout, shared_memory.allocate_unsealed)
        prepared, (descriptor,) = memory.prepare_slots(PrepareSlots(count=2, program=known))
        os.close(descriptor)
        assert prepared.program == expected
