"""Kernels that only read: from memory, from the last cache, from shared memory.  Trusted.

They are PTX, which the driver compiles: no toolkit and no compiler library is needed.  torch's
functions that load them are not public: where they are missing, `ReadKernels()` raises
`RuntimeError`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor

THREADS = 1024  # of a block
BLOCKS = 2  # a multiprocessor: all its threads
UNROLL = 4  # loads of a thread that are under way together
LOAD_BYTES = 16  # of one thread's load

# A thread reads `rounds` times UNROLL vectors, a grid's width apart, and all of it `times` times.
# The loads pass L1 by (.cg).  Without the store, which no data of ours causes, they would go.
PTX = """
.version 7.0
.target sm_70
.address_size 64
.visible .entry read_global(
    .param .u64 out, .param .u64 source, .param .u32 rounds, .param .u32 times)
{{
    .reg .pred p;
    .reg .b32 thread, width, block, round, time, x, a<{registers}>;
    .reg .b64 start, at, stride;
    mov.u32 thread, %tid.x;
    mov.u32 width, %ntid.x;
    mov.u32 block, %ctaid.x;
    mad.lo.u32 thread, block, width, thread;
    mov.u32 block, %nctaid.x;
    mul.lo.u32 width, width, block;
    mul.wide.u32 stride, width, 16;
    mul.wide.u32 at, thread, 16;
    ld.param.u64 start, [source];
    add.u64 start, start, at;
    ld.param.u32 time, [times];
    mov.u32 x, 0;
again:
    mov.u64 at, start;
    ld.param.u32 round, [rounds];
next:
{global_loads}
{sums}
    sub.u32 round, round, 1;
    setp.ne.u32 p, round, 0;
    @p bra next;
    sub.u32 time, time, 1;
    setp.ne.u32 p, time, 0;
    @p bra again;
{end}
}}
.visible .entry read_shared(.param .u64 out, .param .u32 times)
{{
    .reg .pred p;
    .reg .b32 place, start, time, x, a<{registers}>;
    .reg .b64 at;
    .shared .align 16 .b8 words[16384];
    mov.u32 place, %tid.x;
    shl.b32 place, place, 4;
    mov.u32 start, words;
    add.u32 place, place, start;
    mov.u32 x, 0;
    st.shared.v4.u32 [place], {{x, x, x, x}};
    bar.sync 0;
    ld.param.u32 time, [times];
next:
{shared_loads}
{sums}
    sub.u32 time, time, 1;
    setp.ne.u32 p, time, 0;
    @p bra next;
{end}
}}
"""
_GLOBAL_LOAD = "    ld.global.cg.v4.u32 {{{}}}, [at];\n    add.u64 at, at, stride;"
_SHARED_LOAD = "    ld.volatile.shared.v4.u32 {{{}}}, [place];"
_END = """    setp.ne.u32 p, x, 1;
    @p ret;
    ld.param.u64 at, [out];
    st.global.u32 [at], x;
    ret;"""


def ptx() -> str:
    """Return the text of both kernels."""
    names = [f"a{number}" for number in range(4 * UNROLL)]
    vectors = [", ".join(names[first : first + 4]) for first in range(0, len(names), 4)]
    return PTX.format(
        registers=len(names),
        global_loads="\n".join(map(_GLOBAL_LOAD.format, vectors)),
        shared_loads="\n".join(map(_SHARED_LOAD.format, vectors)),
        sums="\n".join(f"    xor.b32 x, x, {name};" for name in names),
        end=_END,
    )


class ReadKernels:
    """The kernels, loaded on this process's card."""

    def __init__(self) -> None:
        try:
            from torch.cuda._utils import _cuda_load_module

            loaded = _cuda_load_module(ptx(), ["read_global", "read_shared"])
        except ImportError as error:
            raise RuntimeError("this torch has no function that loads PTX") from error
        kernels = cast("dict[str, Callable[..., None]]", loaded)
        self._read_global, self._read_shared = kernels["read_global"], kernels["read_shared"]
        blocks = BLOCKS * torch.cuda.get_device_properties(0).multi_processor_count
        self._grid, self._block = (blocks, 1, 1), (THREADS, 1, 1)
        self._out = torch.zeros(1, dtype=torch.int32, device="cuda")
        self.round_bytes = blocks * THREADS * UNROLL * LOAD_BYTES  # of all threads

    def bytes_of(self, source: Tensor) -> int:
        """Return how much of a tensor is read: a whole number of rounds of all threads."""
        return source.nbytes // self.round_bytes * self.round_bytes

    def read(self, source: Tensor, times: int = 1) -> None:
        """Start to read a tensor `times` times."""
        arguments = [self._out, source, source.nbytes // self.round_bytes, times]
        self._read_global(self._grid, self._block, arguments)

    def read_shared(self, times: int) -> None:
        """Start to read `times` rounds from shared memory on all multiprocessors."""
        self._read_shared(self._grid, self._block, [self._out, times])
