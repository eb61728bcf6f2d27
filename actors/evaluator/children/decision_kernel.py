"""The kernel that decides inputs on a card: it hashes an output, and chooses words of two draws.

A candidate can't steer it at a cost that is worth it: outputs are hashed by BLAKE2s in pieces of 64
bytes, each with its number; the digests are added up as eight integers, and a hash of these decides
(a sum of 256 bits: to meet one that is wanted takes far more than what any call saves).  It knows
all of it, and a key in its process would be no secret.

One launch for each tensor of an output: its last block of threads chooses the words.  NVRTC, which
comes with torch, compiles it in the trusted referee; runners load what that gives.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch

ENTRY = "decide"
LEAF_BYTES = 64  # of an output, hashed together
THREADS = 128
STATE_WORDS = 9  # of a call: the sums of digests, and how many blocks of threads are done
SOURCE = r"""
#define ROTATED(x, bits) ((x) >> (bits) | (x) << (32 - (bits)))
#define MIX(a, b, c, d, x, y) \
    a += b + x; d = ROTATED(d ^ a, 16); c += d; b = ROTATED(b ^ c, 12); \
    a += b + y; d = ROTATED(d ^ a, 8); c += d; b = ROTATED(b ^ c, 7);

// BLAKE2s of at most one block: `m` has its words, `number` and `depth` are its place in a tree.
__device__ __noinline__ void blake2s(
    const unsigned* m, unsigned bytes, unsigned number, unsigned depth, unsigned* digest
) {
    const unsigned char order[10][16] = {
        {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
        {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
        {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
        {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
        {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
        {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
        {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
        {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
        {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
        {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
    };
    const unsigned begin[8] = {
        0x6a09e667u, 0xbb67ae85u, 0x3c6ef372u, 0xa54ff53au,
        0x510e527fu, 0x9b05688cu, 0x1f83d9abu, 0x5be0cd19u,
    };
    unsigned h[8], v[16];
    for (int i = 0; i < 8; ++i) h[i] = begin[i];
    h[0] ^= 0x01010020u;
    h[2] ^= number;
    h[3] ^= depth << 16;
    for (int i = 0; i < 8; ++i) v[i] = h[i], v[i + 8] = begin[i];
    v[12] ^= bytes;
    v[14] = ~v[14];
    #pragma unroll
    for (int round = 0; round < 10; ++round) {
        const unsigned char* at = order[round];
        MIX(v[0], v[4], v[8], v[12], m[at[0]], m[at[1]])
        MIX(v[1], v[5], v[9], v[13], m[at[2]], m[at[3]])
        MIX(v[2], v[6], v[10], v[14], m[at[4]], m[at[5]])
        MIX(v[3], v[7], v[11], v[15], m[at[6]], m[at[7]])
        MIX(v[0], v[5], v[10], v[15], m[at[8]], m[at[9]])
        MIX(v[1], v[6], v[11], v[12], m[at[10]], m[at[11]])
        MIX(v[2], v[7], v[8], v[13], m[at[12]], m[at[13]])
        MIX(v[3], v[4], v[9], v[14], m[at[14]], m[at[15]])
    }
    for (int i = 0; i < 8; ++i) digest[i] = h[i] ^ v[i] ^ v[i + 8];
}

// The words of a leaf, at any address; what is beyond the output's end is zero.
__device__ unsigned read_leaf(const unsigned char* bytes, long long left, unsigned* m) {
    unsigned count = left < 64 ? (unsigned)left : 64u;
    bool is_aligned = count == 64 && (unsigned long long)bytes % 4 == 0;
    for (unsigned word = 0; word < 16; ++word) {
        if (is_aligned) {
            m[word] = ((const unsigned*)bytes)[word];
        } else {
            m[word] = 0;
            for (unsigned at = 4 * word; at < 4 * word + 4 && at < count; ++at)
                m[word] |= (unsigned)bytes[at] << 8 * (at % 4);
        }
    }
    return count;
}

template <typename Word>
__device__ void choose(
    Word* mine, const Word* other, const int* spans, int count, int parts,
    const unsigned char* digest
) {
    for (int span = 0; span < count; ++span) {
        int first = spans[3 * span], end = spans[3 * span + 1], step = spans[3 * span + 2];
        for (int place = threadIdx.x; first + (long long)place * step < end; place += blockDim.x) {
            int word = first + place * step;
            if (digest[place % parts] & 0x80) mine[word] = other[word];
        }
    }
}

struct alignas(16) Pair { unsigned long long low, high; };

extern "C" __global__ void decide(
    const unsigned char* output, int bytes, int first_leaf, int is_last, unsigned* state,
    unsigned char* mine, const unsigned char* other, const int* spans, int count, int word_bytes,
    int parts
) {
    __shared__ unsigned sums[8], digest[8], arrived;
    if (threadIdx.x < 8) sums[threadIdx.x] = 0;
    __syncthreads();
    unsigned m[16], leaf_digest[8];
    long long leaf = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (leaf * 64 < bytes) {
        unsigned read = read_leaf(output + leaf * 64, bytes - leaf * 64, m);
        blake2s(m, read, first_leaf + (unsigned)leaf, 0, leaf_digest);
        for (int i = 0; i < 8; ++i) atomicAdd(&sums[i], leaf_digest[i]);
    }
    __syncthreads();
    if (threadIdx.x < 8) atomicAdd(&state[threadIdx.x], sums[threadIdx.x]);
    if (!is_last) return;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) arrived = atomicAdd(&state[8], 1u);
    __syncthreads();
    if (arrived != gridDim.x - 1) return;
    if (threadIdx.x == 0) {
        for (int i = 0; i < 16; ++i) m[i] = i < 8 ? atomicAdd(&state[i], 0u) : 0u;
        blake2s(m, 32, 0, 1, digest);
    }
    __syncthreads();
    const unsigned char* decided = (const unsigned char*)digest;
    if (word_bytes == 4)
        choose((unsigned*)mine, (const unsigned*)other, spans, count, parts, decided);
    else if (word_bytes == 8)
        choose(
            (unsigned long long*)mine, (const unsigned long long*)other, spans, count, parts,
            decided
        );
    else
        choose((Pair*)mine, (const Pair*)other, spans, count, parts, decided);
}
"""

# Starts blocks of threads with the kernel's arguments, as the driver takes them.
Launch = Callable[[int, ctypes.Array[ctypes.c_void_p]], None]


@functools.cache
def program() -> bytes:
    """Return the kernel for this process's card; nothing where it can't be compiled."""
    try:
        from torch.cuda._utils import _nvrtc_compile

        binary, _name = _nvrtc_compile(SOURCE, ENTRY)
    except (ImportError, RuntimeError, OSError):  # no NVRTC, or a card that it does not know
        return b""
    return binary


@functools.cache
def loaded(binary: bytes) -> Launch:
    """Return what launches a program on this process's card, on torch's current stream.

    torch's own way to launch it takes as long as five of its operations.
    """
    from torch.cuda._utils import _cuda_load_module

    function = cast("dict[str, Any]", _cuda_load_module(binary, [ENTRY]))[ENTRY].func
    driver, device = ctypes.CDLL("libcuda.so.1"), torch.cuda.current_device()

    def launch(blocks: int, arguments: ctypes.Array[ctypes.c_void_p]) -> None:
        stream = ctypes.c_void_p(torch._C._cuda_getCurrentRawStream(device))
        sizes = blocks, 1, 1, THREADS, 1, 1, 0
        status = driver.cuLaunchKernel(function, *sizes, stream, arguments, None)
        if status:
            raise RuntimeError(f"the kernel that decides inputs can't be launched ({status})")

    return launch


class DecidedSlots:
    """Pairs of slots whose first one has, after `decide`, words of both."""

    def __init__(
        self,
        launch: Launch,
        pairs: Sequence[tuple[torch.Tensor, torch.Tensor]],
        spans: Sequence[slice],
        word_bytes: int,
        parts: int,
    ) -> None:
        """`spans`: the words that are chosen; `parts`: the bytes of the hash that decide."""
        self._launch = launch
        device = pairs[0][0].device
        table = [(span.start, span.stop, span.step) for span in spans]
        self._spans = torch.tensor(table, dtype=torch.int32, device=device)
        sizes = len(pairs), STATE_WORDS
        self._states = torch.zeros(sizes, dtype=torch.int32, device=device)
        self._pairs = pairs  # their memory is read and written
        self._places = [
            (
                self._states.data_ptr() + 4 * STATE_WORDS * number,
                *(each.data_ptr() for each in pair),
            )
            for number, pair in enumerate(pairs)
        ]
        pointer, number = ctypes.c_void_p, ctypes.c_int
        self._output, self._size = pointer(), number()
        self._first_leaf, self._is_last = number(), number()
        self._place = pointer(), pointer(), pointer()
        self._values = (
            *(self._output, self._size, self._first_leaf, self._is_last, *self._place),
            *(pointer(self._spans.data_ptr()), number(len(spans))),
            *(number(word_bytes), number(parts)),
        )
        # The driver copies what these point to when a kernel is launched.
        addresses = map(ctypes.addressof, self._values)
        self._arguments = (pointer * len(self._values))(*addresses)

    def decide(self, pair: int, raws: Sequence[torch.Tensor]) -> None:
        """Have the bytes of an output, one tensor for each of its own, decide a pair's words."""
        for value, place in zip(self._place, self._places[pair], strict=True):
            value.value = place
        leaves = 0
        for number, raw in enumerate(raws or [self._spans[:0]]):
            count = -(-raw.nbytes // LEAF_BYTES)
            self._output.value, self._size.value = raw.data_ptr(), raw.nbytes
            self._first_leaf.value, self._is_last.value = leaves, int(number + 1 >= len(raws))
            self._launch(max(1, -(-count // THREADS)), self._arguments)
            leaves += count
