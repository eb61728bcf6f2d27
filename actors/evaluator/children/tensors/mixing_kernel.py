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
SOURCE = r"""
__device__ unsigned scaled(unsigned bits, float factor) {
    return __float_as_uint(__uint_as_float(bits) * factor);
}

extern "C" __global__ void mix(
    const uint4* first, const uint4* second, const unsigned char* chosen, const float* factors,
    uint4* slots, int words, int count, int chosen_stride, int slot_stride, int is_scaled
) {
    long long word = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (word >= words) return;
    uint4 one = first[word], other = second[word];
    for (long long slot = blockIdx.y; slot < count; slot += gridDim.y) {
        uint4 mixed = chosen[slot * chosen_stride + word] ? one : other;
        if (is_scaled) {
            float factor = factors[slot];
            mixed.x = scaled(mixed.x, factor);
            mixed.y = scaled(mixed.y, factor);
            mixed.z = scaled(mixed.z, factor);
            mixed.w = scaled(mixed.w, factor);
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
        and (factors is None or factors.dtype is torch.float32)
        and slots.numel() * slots.element_size() >= LEAST_BYTES
    )
    kernel = _compiled() if is_possible else None
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
    unused = draws[0] if factors is None else factors
    sizes = [words, count, chosen.stride(0), slots.stride(0), int(factors is not None)]
    tensors = [*draws, chosen, unused, slots]
    kernel(grid=(columns, rows, 1), block=(THREADS, 1, 1), args=[*tensors, *sizes])


@functools.cache
def _compiled() -> Kernel | None:
    """Return the kernel, once it has given what torch gives; None where it can't be had."""
    compile_kernel: Any = getattr(torch.cuda, "_compile_kernel", None)
    if compile_kernel is None:
        return None
    try:
        kernel: Kernel = compile_kernel(SOURCE, "mix")
        return kernel if is_right(kernel, "cuda") else None
    except (RuntimeError, OSError):  # no NVRTC, no headers, a card that it does not know
        return None


def is_right(kernel: Kernel, device: str) -> bool:
    """Whether the kernel writes what torch does, with factors and without, and nothing else."""
    floats = torch.randn(2, TRIED_WORDS * 4, device=device)
    draws = floats[0].view(torch.complex128), floats[1].view(torch.complex128)
    mask = torch.rand(TRIED_WORDS + 100, device=device) < 0.5
    chosen = mask.as_strided((TRIED_SLOTS, TRIED_WORDS), (7, 1), 5)
    given = torch.rand(TRIED_SLOTS, 1, device=device)
    for factors in (None, given):
        memory = torch.zeros(TRIED_SLOTS, TRIED_WORDS + 8, dtype=torch.complex128, device=device)
        expected = memory.clone()
        launch(kernel, memory[:, 3 : TRIED_WORDS + 3], draws, chosen, factors)
        place = expected[:, 3 : TRIED_WORDS + 3]
        torch.where(chosen, *draws, out=place)
        if factors is not None:
            place.view(torch.float32).mul_(factors)
        if not torch.equal(memory.view(torch.int64), expected.view(torch.int64)):
            return False
    return True
