"""The kernel that fills slots on a card, compiled for the host, gives what torch gives."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import pytest

HOST = r"""
#include <cstring>
#define __global__
#define __device__ static
struct uint4 { unsigned x, y, z, w; };
struct dim { unsigned x, y, z; };
static dim blockIdx, blockDim, threadIdx, gridDim;
static unsigned __float_as_uint(float x) { unsigned bits; memcpy(&bits, &x, 4); return bits; }
static float __uint_as_float(unsigned bits) { float x; memcpy(&x, &bits, 4); return x; }
static float float_of_half(unsigned bits) { _Float16 x; memcpy(&x, &bits, 2); return x; }
static unsigned half_of_float(float x) {
    _Float16 half = x;
    unsigned bits = 0;
    memcpy(&bits, &half, 2);
    return bits;
}
"""
LAUNCH = r"""
extern "C" void launch(const unsigned* grid, unsigned threads, void** at, const int* sizes) {
    gridDim = {grid[0], grid[1], 1};
    blockDim = {threads, 1, 1};
    for (blockIdx.x = 0; blockIdx.x < grid[0]; blockIdx.x++)
        for (blockIdx.y = 0; blockIdx.y < grid[1]; blockIdx.y++)
            for (threadIdx.x = 0; threadIdx.x < threads; threadIdx.x++)
                mix((uint4*)at[0], (uint4*)at[1], (unsigned char*)at[2], (uint4*)at[3],
                    (uint4*)at[4], sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], sizes[5],
                    sizes[6]);
}
"""


def on_host(torch: ModuleType, folder: Path, kernel: str) -> Callable[..., None]:
    """Return what launches the kernel, compiled for the host."""
    source, library = folder / "mix.cpp", folder / "mix.so"
    source.write_text(HOST + kernel + LAUNCH, encoding="ascii")
    subprocess.run(["c++", "-O1", "-shared", "-fPIC", "-o", library, source], check=True)
    run = ctypes.CDLL(str(library)).launch

    def launch(grid: Sequence[int], block: Sequence[int], args: Sequence[object]) -> None:
        at = [each.data_ptr() for each in args if isinstance(each, torch.Tensor)]
        sizes = [each for each in args if isinstance(each, int)]
        run(
            (ctypes.c_uint * 3)(*grid),
            block[0],
            (ctypes.c_void_p * 5)(*at),
            (ctypes.c_int * 7)(*sizes),
        )

    return launch


@pytest.mark.parametrize(
    ("text", "other", "is_right"),
    [
        ("word] = mixed", "word] = mixed", True),
        ("word] = mixed", "0] = mixed", False),
        ("0x7fff + ((whole >> 16) & 1)", "0x8000", False),
        ("kind == 2", "kind == 3", False),
    ],
)
def test_the_kernel_mixes_and_scales_as_torch_does(
    torch: ModuleType, tmp_path: Path, text: str, other: str, *, is_right: bool
) -> None:
    """Each word of each slot, and no other; a kernel that is wrong is not used."""
    from actors.evaluator.children.tensors import mixing_kernel

    launch = on_host(torch, tmp_path, mixing_kernel.SOURCE.replace(text, other))
    kinds = (None, *mixing_kernel.KINDS)
    assert is_right is all(mixing_kernel.is_right(launch, kind, "cpu") for kind in kinds)


def test_a_nan_stays_one(torch: ModuleType, tmp_path: Path) -> None:
    """Rounding a NaN of full payload as a number would make it zero; a card makes such NaNs."""
    from actors.evaluator.children.tensors import mixing_kernel

    bits = torch.tensor([0x7FFF, 0xFFFF, 0x7F81, 0x7FC0], dtype=torch.int32).to(torch.int16)
    draw = bits.repeat(16).view(torch.complex128)
    slots = torch.zeros(1, len(draw), dtype=torch.complex128)
    chosen, factors = torch.ones(1, len(draw), dtype=torch.bool), torch.full((1, 64), 0.99)
    launch = on_host(torch, tmp_path, mixing_kernel.SOURCE)
    mixing_kernel.launch(launch, slots, (draw, draw), chosen, factors.to(torch.bfloat16))
    assert bool(slots.view(torch.bfloat16).isnan().all())


@pytest.mark.gpu
def test_torch_has_the_compiler_of_the_kernel(torch: ModuleType) -> None:
    """Without it slots are filled four times as slowly, and all the rest is the same."""
    from actors.evaluator.children.tensors import mixing_kernel

    torch.zeros(1, device="cuda")
    assert all(map(mixing_kernel._right_kernel, (None, *mixing_kernel.KINDS)))
