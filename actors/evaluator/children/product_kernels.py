"""Kernels of arithmetic instructions alone, from registers or shared memory.  Trusted.

They are PTX, which the driver compiles, as `read_kernels` has it.  `wgmma` exists on compute
capability 9.0 alone; loading it elsewhere raises `RuntimeError`, as a torch does that loads no PTX.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch

from protocol.values import Value

ENTRY = "products"
# Rounds of a launch, which takes up to a millisecond.
TIMES = {"mma.sync": 6144, "wgmma": 2048, "fma": 2048}
# Instructions of a round, which do not wait for each other.  More of wgmma take long to compile.
CHAINS = {"mma.sync": 8, "wgmma": 2, "fma": 64}
COLUMNS = 128  # of wgmma's right operand: wider ones are not faster
OPERAND_REGISTERS = 4, 2  # of mma.sync
MMA_SUMS, WGMMA_SUMS = 4, 64  # registers of sums, a thread
THREADS, BLOCKS = 256, 2  # of a block, on a multiprocessor
THREADS_OF = {"mma.sync": 32, "wgmma": 128, "fma": 1}  # that do one instruction together


class Product(Value, frozen=True, kw_only=True):
    """One instruction: what it multiplies, and values of its operands between a half and one."""

    instruction: str  # "mma.sync", "wgmma" or "fma", which is that of one thread
    types: str  # of sums and operands, as PTX names them
    depth: int  # k; of "fma" the values of an operand
    bits: tuple[int, int]  # a word of operands is random & mask | base

    @property
    def flops(self) -> int:
        """Return the multiplications and additions of one instruction."""
        tiles = {"mma.sync": 16 * 8, "wgmma": 64 * COLUMNS, "fma": 1}
        return 2 * tiles[self.instruction] * self.depth


BFLOAT16, TF32, FLOAT8 = (0x7F007F, 0x3F003F00), (0x7FE000, 0x3F000000), (0x7070707, 0x30303030)
FLOAT16 = 0x3FF03FF, 0x38003800
PRODUCTS = {
    "bfloat16 by mma.sync": Product(
        instruction="mma.sync", types="f32.bf16.bf16.f32", depth=16, bits=BFLOAT16
    ),
    "bfloat16 by wgmma": Product(
        instruction="wgmma", types="f32.bf16.bf16", depth=16, bits=BFLOAT16
    ),
    "TF32 by mma.sync": Product(
        instruction="mma.sync", types="f32.tf32.tf32.f32", depth=8, bits=TF32
    ),
    "TF32 by wgmma": Product(instruction="wgmma", types="f32.tf32.tf32", depth=8, bits=TF32),
    "float8 by wgmma": Product(instruction="wgmma", types="f32.e4m3.e4m3", depth=32, bits=FLOAT8),
    "float32 by fma": Product(instruction="fma", types="f32", depth=1, bits=TF32),
    "float16 by fma of half2": Product(instruction="fma", types="f16x2", depth=2, bits=FLOAT16),
}

_HEAD = """
.version {version}
.target {target}
.address_size 64
.visible .entry products(.param .u64 out, .param .u32 times) .maxntid {threads}, 1, 1
{{
    .reg .pred p;
    .reg .b32 word, time, place, a<4>, h<{halves}>;
    .reg .f32 d<{sums}>;
    .reg .b64 at, left, right;
{shared}    mov.u32 word, %tid.x;
    mul.lo.u32 word, word, 0x9e3779b1;
    and.b32 word, word, {mask};
    or.b32 word, word, {base};
{zeros}
{operands}
    ld.param.u32 time, [times];
next:
{products}
    sub.u32 time, time, 1;
    setp.ne.u32 p, time, 0;
    @p bra next;
{end}
}}
"""
# Without the store, which no sum of positive numbers causes, the instructions would go.
_END = """    setp.ne.f32 p, d0, 0fBF800000;
    @p ret;
    ld.param.u64 at, [out];
    st.global.f32 [at], d0;
    ret;"""
_SHARED = "    .shared .align 128 .b8 words[16384];\n"
# Rows of eight by 16 bytes lie side by side (128 bytes), the next eight rows behind them.
_DESCRIPTORS = """    mov.u32 place, %tid.x;
    shl.b32 place, place, 6;
    mov.u32 a0, words;
    add.u32 place, place, a0;
{stores}
    fence.proxy.async;
    bar.sync 0;
    shr.u32 a0, a0, 4;
    cvt.u64.u32 left, a0;
    or.b64 left, left, 0x1000080000;
    add.u64 right, left, 128;"""


def ptx(product: Product) -> str:
    """Return the text of the kernel that repeats an instruction."""
    is_group = product.instruction == "wgmma"
    write = {"mma.sync": _mma, "wgmma": _wgmma, "fma": _fma}[product.instruction]
    chains = CHAINS[product.instruction]
    sums = {"mma.sync": MMA_SUMS * chains, "wgmma": WGMMA_SUMS, "fma": chains}[product.instruction]
    mask, base = product.bits
    return _HEAD.format(
        version="8.0" if is_group else "7.0",
        target="sm_90a" if is_group else "sm_80",
        threads=THREADS,
        sums=sums,
        halves=sums if product.types == "f16x2" else 1,
        shared=_SHARED if is_group else "",
        mask=mask,
        base=base,
        zeros="\n".join(f"    mov.f32 d{number}, 0f00000000;" for number in range(sums)),
        end=_sum(sums) + _END,
        **write(product),
    )


def _mma(product: Product) -> dict[str, str]:
    left, right = (", ".join(f"a{n}" for n in range(count)) for count in OPERAND_REGISTERS)
    name = f"mma.sync.aligned.m16n8k{product.depth}.row.col.{product.types}"
    lines = []
    for chain in range(CHAINS[product.instruction]):
        own = ", ".join(f"d{MMA_SUMS * chain + n}" for n in range(MMA_SUMS))
        lines.append(f"    {name} {{{own}}}, {{{left}}}, {{{right}}}, {{{own}}};")
    operands = "\n".join(f"    mov.b32 a{n}, word;" for n in range(OPERAND_REGISTERS[0]))
    return {"operands": operands, "products": "\n".join(lines)}


def _fma(product: Product) -> dict[str, str]:
    """Return multiplications and additions of threads; pairs of halves lie in words."""
    name, chains = f"fma.rn.{product.types}", range(CHAINS["fma"])
    if product.types == "f32":
        operands = ["    mov.b32 d0, word;"]  # the first sum is the operand of all others
        lines = [f"    {name} d{n}, d0, d0, d{n};" for n in chains if n]
        lines.append(f"    {name} d1, d0, d0, d1;")
    else:
        operands = [f"    mov.b32 h{n}, word;" for n in chains]
        lines = [f"    {name} h{n}, word, word, h{n};" for n in chains]
        lines += [f"    mov.b32 d{n}, h{n};" for n in chains]
    return {"operands": "\n".join(operands), "products": "\n".join(lines)}


def _wgmma(product: Product) -> dict[str, str]:
    own = ", ".join(f"d{n}" for n in range(WGMMA_SUMS))
    order = ", 0, 0" if "16" in product.types else ""  # of halves: neither is transposed
    name = f"wgmma.mma_async.sync.aligned.m64n{COLUMNS}k{product.depth}.{product.types}"
    # The predicate of a round's end is the one that has a product added to the sums.
    lines = ["    setp.eq.u32 p, a0, a0;", "    wgmma.fence.sync.aligned;"]
    each = f"    {name} {{{own}}}, left, right, p, 1, 1{order};"
    lines += [each] * CHAINS[product.instruction]
    lines += ["    wgmma.commit_group.sync.aligned;", "    wgmma.wait_group.sync.aligned 0;"]
    stores = "\n".join(
        f"    st.shared.v4.b32 [place+{at}], {{word, word, word, word}};" for at in (0, 16, 32, 48)
    )
    return {"operands": _DESCRIPTORS.format(stores=stores), "products": "\n".join(lines)}


def _sum(sums: int) -> str:
    return "\n".join(f"    add.f32 d0, d0, d{number};" for number in range(1, sums)) + "\n"


class ProductKernel:
    """The kernel of one instruction, loaded on this process's card."""

    def __init__(self, product: Product) -> None:
        try:
            from torch.cuda._utils import _cuda_load_module

            loaded = _cuda_load_module(ptx(product), [ENTRY])
        except ImportError as error:
            raise RuntimeError("this torch has no function that loads PTX") from error
        self._run = cast("dict[str, Callable[..., None]]", loaded)[ENTRY]
        self._blocks = BLOCKS * torch.cuda.get_device_properties(0).multi_processor_count
        self._times = TIMES[product.instruction]
        self._out = torch.zeros(1, device="cuda")
        workers = self._blocks * THREADS // THREADS_OF[product.instruction]
        repeated = self._times * CHAINS[product.instruction]
        self.flops = workers * repeated * product.flops  # of one launch

    def run(self) -> None:
        """Start one launch."""
        self._run((self._blocks, 1, 1), (THREADS, 1, 1), [self._out, self._times])
