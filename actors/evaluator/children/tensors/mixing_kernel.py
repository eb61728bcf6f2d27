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
__device__ unsigned scaled_half(unsigned bits, float factor, int kind) {
    if (kind == 2) return half_of_float(float_of_half(bits) * factor);
    unsigned whole = __float_as_uint(__uint_as_float(bits << 16) * factor);
    if ((whole & 0x7fffffff) > 0x7f800000) return 0x7fff;  // rounding would make it zero
    return (whole + 0x7fff + ((whole >> 16) & 1)) >> 16;
}

__device__ unsigned scaled(unsigned bits, float factor, int kind) {
    if (kind == 1) return __float_as_uint(__uint_as_float(bits) * factor);
    unsigned high = scaled_half(bits >> 16, factor, kind);
    return high << 16 | scaled_half(bits & 0xffff, factor, kind);
}

extern "C" __global__ void mix(
    const uint4* first, const uint4* second, const unsigned char* chosen, const float* factors,
    uint4* slots, int words, int count, int chosen_stride, int slot_stride, int kind
) {
    long long word = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (word >= words) return;
    uint4 one = first[word], other = second[word];
    for (long long slot = blockIdx.y; slot < count; slot += gridDim.y) {
        uint4 mixed = chosen[slot * chosen_stride + word] ? one : other;
        if (kind) {
            float factor = factors[slot];
            mixed.x = scaled(mixed.x, factor, kind);
            mixed.y = scaled(mixed.y, factor, kind);
            mixed.z = scaled(mixed.z, factor, kind);
            mixed.w = scaled(mixed.w, factor, kind);
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

    `chosen` (slots × words): whether the first draw's word counts; `factors`: of each slot.
    """
    is_possible = (
        slots.is_cuda
        and slots.element_size() == torch.complex128.itemsize
        and chosen.shape == slots.shape
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
    sizes = [words, count, chosen.stride(0), slots.stride(0), kind]
    tensors = [*draws, chosen, draws[0] if factors is None else factors.float(), slots]
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
    mask = torch.rand(TRIED_WORDS + 100, device=device) < 0.5
    chosen = mask.as_strided((TRIED_SLOTS, TRIED_WORDS), (7, 1), 5)
    values = torch.randn(2, TRIED_WORDS * 16, device=device).to(dtype or torch.float32)
    one, other = values.view(torch.complex128)[:, :TRIED_WORDS]
    draws = one.contiguous(), other.contiguous()
    factors = None if dtype is None else 1 - torch.rand(TRIED_SLOTS, 1, device=device).to(dtype)
    memory = torch.zeros(TRIED_SLOTS, TRIED_WORDS + 8, dtype=torch.complex128, device=device)
    expected = memory.clone()
    launch(kernel, memory[:, 3 : TRIED_WORDS + 3], draws, chosen, factors)
    place = expected[:, 3 : TRIED_WORDS + 3]
    torch.where(chosen, *draws, out=place)
    if factors is not None:
        place.view(factors.dtype).mul_(factors)
    return torch.equal(memory.view(torch.int64), expected.view(torch.int64))
