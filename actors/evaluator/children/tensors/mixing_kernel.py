"""Mixes two draws into all slots on a card in one pass, and scales them.

torch takes one pass to choose and one to multiply, which together read and write the slots three
times and both draws once for each slot: 12 GiB take 20 ms, more than the calls on them.  This
kernel reads each draw once and writes each slot once.  NVRTC, which comes with torch, compiles it.
Where that is not possible, or its result is not that of torch, torch does it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

WORD_BYTES = torch.complex128.itemsize  # that a thread reads and writes
PARTS = (torch.complex128, torch.int64, torch.int32, torch.int16)  # of a word, chosen together
THREADS = 256
MOST_BLOCKS = 1 << 13  # that share the slots; a tensor of more words has more blocks
LEAST_BYTES = 1 << 30  # of all slots together: less is not worth compiling
TRIED_WORDS, TRIED_SLOTS = 1000, 3
KINDS = {torch.float32: 1, torch.float16: 2, torch.bfloat16: 3}  # of values with factors; 0: none
HALVES = r"""
__device__ float float_of_half(unsigned bits) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"((unsigned short)bits));
    return x;
}

__device__ unsigned half_of_float(float x) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}
"""
SOURCE = r"""
__device__ unsigned scaled_half(unsigned bits, unsigned factor, int kind) {
    if (kind == 2) return half_of_float(float_of_half(bits) * float_of_half(factor));
    unsigned whole = __float_as_uint(__uint_as_float(bits << 16) * __uint_as_float(factor << 16));
    if ((whole & 0x7fffffff) > 0x7f800000) return 0x7fff;  // rounding would make it zero
    return (whole + 0x7fff + ((whole >> 16) & 1)) >> 16;
}

__device__ unsigned scaled(unsigned bits, unsigned factors, int kind) {
    if (kind == 1) return __float_as_uint(__uint_as_float(bits) * __uint_as_float(factors));
    unsigned high = scaled_half(bits >> 16, factors >> 16, kind);
    return high << 16 | scaled_half(bits & 0xffff, factors & 0xffff, kind);
}

// Returns one of four lanes of a word; each choice is for `choices`-th parts of the word.
__device__ unsigned selected(
    const unsigned char* chosen, unsigned one, unsigned other, int lane, int choices
) {
    if (choices < 8) return chosen[lane * choices / 4] ? one : other;
    unsigned low = chosen[2 * lane] ? one : other, high = chosen[2 * lane + 1] ? one : other;
    return (low & 0xffff) | (high & 0xffff0000);
}

extern "C" __global__ void mix(
    const uint4* first, const uint4* second, const unsigned char* chosen, const uint4* factors,
    uint4* slots, int words, int count, int chosen_stride, int factor_stride, int slot_stride,
    int kind, int choices
) {
    long long word = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (word >= words) return;
    uint4 one = first[word], other = second[word];
    for (long long slot = blockIdx.y; slot < count; slot += gridDim.y) {
        const unsigned char* at = chosen + slot * chosen_stride + word * choices;
        uint4 mixed;
        mixed.x = selected(at, one.x, other.x, 0, choices);
        mixed.y = selected(at, one.y, other.y, 1, choices);
        mixed.z = selected(at, one.z, other.z, 2, choices);
        mixed.w = selected(at, one.w, other.w, 3, choices);
        if (kind) {
            uint4 by = factors[slot * factor_stride + word];
            mixed.x = scaled(mixed.x, by.x, kind);
            mixed.y = scaled(mixed.y, by.y, kind);
            mixed.z = scaled(mixed.z, by.z, kind);
            mixed.w = scaled(mixed.w, by.w, kind);
        }
        slots[slot * slot_stride + word] = mixed;
    }
}
"""

Kernel = Callable[..., None]


def mix(
    slots: torch.Tensor,
    draws: tuple[torch.Tensor, torch.Tensor],
    chosen: torch.Tensor,
    factors: torch.Tensor | None,
) -> bool:
    """Write `slots` (slots × words of 16 bytes); return False where torch has to do it.

    `chosen` (slots × words, or parts of words): whether the first draw's counts; `factors` (slots ×
    values): windows that begin at words.
    """
    words = slots.shape[1]
    is_possible = (
        slots.is_cuda
        and slots.element_size() == WORD_BYTES
        and chosen.shape[1] in [words * WORD_BYTES // part.itemsize for part in PARTS]
        and (factors is None or factors.dtype in KINDS)
        and slots.numel() * slots.element_size() >= LEAST_BYTES
    )
    dtype = None if factors is None else factors.dtype
    kernel = _right_kernel(dtype) if is_possible else None
    if kernel is None:
        return False
    launch(kernel, slots, draws, chosen, factors)
    return True


def launch(
    kernel: Kernel,
    slots: torch.Tensor,
    draws: tuple[torch.Tensor, torch.Tensor],
    chosen: torch.Tensor,
    factors: torch.Tensor | None,
) -> None:
    """Launch the kernel; words and slots must have their last stride 1."""
    count, words = slots.shape
    columns = -(-words // THREADS)
    rows = max(1, min(count, MOST_BLOCKS // columns))
    kind = 0 if factors is None else KINDS[factors.dtype]
    by = draws[0].view(1, -1) if factors is None else factors.view(torch.complex128)
    choices = chosen.shape[1] // words
    sizes = [words, count, chosen.stride(0), by.stride(0), slots.stride(0), kind, choices]
    tensors = [*draws, chosen, by, slots]
    kernel(grid=(columns, rows, 1), block=(THREADS, 1, 1), args=[*tensors, *sizes])


@functools.cache
def _right_kernel(dtype: torch.dtype | None) -> Kernel | None:
    """Return the kernel once it has given what torch gives; None where it can't be had.

    `dtype`: of values that have factors.
    """
    kernel = _compiled()
    return kernel if kernel is not None and is_right(kernel, dtype, "cuda") else None


@functools.cache
def _compiled() -> Kernel | None:
    compile_kernel: Any = getattr(torch.cuda, "_compile_kernel", None)
    if compile_kernel is None:
        return None
    try:
        kernel: Kernel = compile_kernel(HALVES + SOURCE, "mix")
    except (RuntimeError, OSError):  # no NVRTC, no headers, a card that it does not know
        return None
    return kernel


def is_right(kernel: Kernel, dtype: torch.dtype | None, device: str) -> bool:
    """Whether the kernel writes what torch does, and nothing else."""
    values = torch.randn(2, TRIED_WORDS * 16, device=device).to(dtype or torch.float32)
    draws = values.view(torch.complex128)[:, :TRIED_WORDS].contiguous()
    factors = None
    if dtype is not None:
        drawn = 1 - torch.rand(2 * TRIED_WORDS * 8, device=device)
        words = drawn.to(dtype).view(torch.complex128)
        factors = words.as_strided((TRIED_SLOTS, TRIED_WORDS), (9, 1), 3).view(dtype)
    return all(_is_right(kernel, draws, factors, part) for part in PARTS)


def _is_right(
    kernel: Kernel, draws: torch.Tensor, factors: torch.Tensor | None, part: torch.dtype
) -> bool:
    """`part`: of what is chosen together."""
    one, other = draws
    length = len(one.view(part))
    mask = torch.rand(length + 100, device=one.device) < 0.5
    chosen = mask.as_strided((TRIED_SLOTS, length), (7, 1), 5)
    memory = torch.zeros(TRIED_SLOTS, TRIED_WORDS + 8, dtype=torch.complex128, device=one.device)
    expected = memory.clone()
    launch(kernel, memory[:, 3 : TRIED_WORDS + 3], (one, other), chosen, factors)
    place = expected[:, 3 : TRIED_WORDS + 3]
    torch.where(chosen, one.view(part), other.view(part), out=place.view(part))
    if factors is not None:
        place.view(factors.dtype).mul_(factors)
    return torch.equal(memory.view(torch.int64), expected.view(torch.int64))
