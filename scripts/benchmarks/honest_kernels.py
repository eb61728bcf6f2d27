"""Honest kernels of all kinds for `truth`: bound by memory, by arithmetic, by launches."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Literal, get_args

from protocol.values import DeviceKind, Value

TASK = """\
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, {names}):
        {forward}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""
OWN_MODULE = "\n\nclass ModelNew(Model):\n    pass\n"

RAW = '''

import ctypes

from torch.utils.cpp_extension import load_inline

built = load_inline(
    "honest_{name}",
    "",
    cuda_sources=r"""{code}""",
    with_cuda=True,
    is_python_module=False,
    no_implicit_headers=True,
)
native = ctypes.CDLL(built)


class ModelNew(nn.Module):
    def forward(self, x):
        z = torch.empty_like(x)
        native.run(
            ctypes.c_void_p(x.data_ptr()),
            ctypes.c_void_p(z.data_ptr()),
            ctypes.c_long(x.numel() // 4),
            ctypes.c_void_p(torch.cuda.current_stream().cuda_stream),
        )
        return z
'''
RELU_CODE = r"""__global__ void relu4(const float4* x, float4* z, long n) {
    long i = blockIdx.x * 256L + threadIdx.x;
    if (i < n) {
        float4 v = x[i];
        z[i] = make_float4(fmaxf(v.x, 0), fmaxf(v.y, 0), fmaxf(v.z, 0), fmaxf(v.w, 0));
    }
}
extern "C" void run(const float4* x, float4* z, long n, cudaStream_t stream) {
    relu4<<<(n + 255) / 256, 256, 0, stream>>>(x, z, n);
}
"""
SINE_CODE = r"""__global__ void sines(const float4* x, float4* z, long n) {
    long i = blockIdx.x * 256L + threadIdx.x;
    if (i < n) {
        float4 v = x[i];
        for (int turn = 0; turn < 64; turn++) {
            v = make_float4(__sinf(v.x), __sinf(v.y), __sinf(v.z), __sinf(v.w));
        }
        z[i] = make_float4(v.x * 0 + fmaxf(x[i].x, 0), v.y * 0 + fmaxf(x[i].y, 0),
                           v.z * 0 + fmaxf(x[i].z, 0), v.w * 0 + fmaxf(x[i].w, 0));
    }
}
extern "C" void run(const float4* x, float4* z, long n, cudaStream_t stream) {
    sines<<<(n + 255) / 256, 256, 0, stream>>>(x, z, n);
}
"""
POOL_CODE = r"""__global__ void pool3(const float* x, float4* z, long n) {
    long i = blockIdx.x * 256L + threadIdx.x;
    if (i >= n) return;
    int column = i * 4 % 512, row = i * 4 / 512 % 512;
    float4 best = make_float4(-INFINITY, -INFINITY, -INFINITY, -INFINITY);
    for (int r = max(row - 1, 0); r <= min(row + 1, 511); r++) {
        const float* line = x + i * 4 + (r - row) * 512;
        float4 v = *(const float4*)line;
        float before = column ? line[-1] : v.x, after = column < 508 ? line[4] : v.w;
        best.x = fmaxf(best.x, fmaxf(before, fmaxf(v.x, v.y)));
        best.y = fmaxf(best.y, fmaxf(v.x, fmaxf(v.y, v.z)));
        best.z = fmaxf(best.z, fmaxf(v.y, fmaxf(v.z, v.w)));
        best.w = fmaxf(best.w, fmaxf(v.z, fmaxf(v.w, after)));
    }
    z[i] = best;
}
extern "C" void run(const float* x, float4* z, long n, cudaStream_t stream) {
    pool3<<<(n + 255) / 256, 256, 0, stream>>>(x, z, n);
}
"""
TRITON = """

import triton
import triton.language as tl


@triton.jit
def relu_kernel(x, z, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z + at, tl.maximum(tl.load(x + at, at < n), 0.0), at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        z = torch.empty_like(x)
        relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, z, x.numel(), BLOCK=1024)
        return z
"""


Kind = Literal["launches", "memory", "arithmetic", "gigabytes"]
LAUNCHES = re.compile(
    r"gelu (10 KB|1 MB|4 MB)|raw relu (1|16) MB|triton relu 10 KB|product 256|small|add 40 B|a view"
)
ARITHMETIC = re.compile(r"product|attention|convolution|raw sines")


class HonestKernel(Value, frozen=True, kw_only=True):
    """A task and an honest candidate for it."""

    name: str
    task: str
    candidate: str
    task_in_front: bool = False  # another clock needs the task's `get_inputs`

    @property
    def clocked(self) -> str:
        """What another clock imports."""
        if not self.task_in_front:
            return self.candidate
        lines = f"{self.task}\n{self.candidate}".splitlines(keepends=True)
        # These have to be a file's first ones.
        return "".join(line for line in lines if not line.startswith("from __future__ "))

    @property
    def gigabytes(self) -> int:
        """How many of them its inputs or outputs have, as its name says."""
        found = re.search(r"(\d+) GB$", self.name)
        return int(found[1]) if found else 0

    @property
    def kind(self) -> Kind:
        """What bounds it on a card."""
        if self.gigabytes:
            return "gigabytes"
        if LAUNCHES.match(self.name):
            return "launches"
        return "arithmetic" if ARITHMETIC.match(self.name) else "memory"


def in_drawn_order(kernels: Sequence[HonestKernel], seed: str) -> list[HonestKernel]:
    """Return the kernels in an order that a text decides, their kinds in turn.

    So the first ones are a fair choice, however many there is time for.
    """
    shuffled = sorted(kernels, key=lambda each: sha256(f"{seed} {each.name}".encode()).digest())
    of_kinds = [[each for each in shuffled if each.kind == kind] for kind in get_args(Kind)]
    rows = itertools.zip_longest(*of_kinds)
    return [each for row in rows for each in row if each is not None]


def task_source(forward: str, *inputs: str, init: str = "pass") -> str:
    """Return the file of a task: of inputs x, y, z, w, and what `forward` returns."""
    names = ", ".join("xyzw"[: len(inputs)])
    return TASK.format(
        init=init, names=names, forward=f"return {forward}", inputs=", ".join(inputs)
    )


def _library(name: str, forward: str, *inputs: str, init: str = "pass") -> HonestKernel:
    task = task_source(forward, *inputs, init=init)
    return HonestKernel(name=name, task=task, candidate=task + OWN_MODULE)


def honest_kernels(device: DeviceKind) -> list[HonestKernel]:
    """Return the kernels for a device: more than thirty for a card, a dozen for a host."""
    return _for_card() if device == "cuda" else _for_host()


def corner_kernels(device: DeviceKind) -> list[HonestKernel]:
    """Return kernels at the end of what can be judged: calls of seconds."""
    size, products = (8192, 95) if device == "cuda" else (2048, 16)
    chain = f"[y := x] and [y := torch.tanh(y @ x) for _ in range({products})][-1]"
    return [_library("products of seconds", chain, f"torch.randn({size}, {size})")]


def _shortest() -> list[HonestKernel]:
    return [
        _library("add 40 B", "x + 1", "torch.randn(10)"),
        _library("a view", "x.t()", "torch.randn(64, 256)"),
    ]


def _for_card() -> list[HonestKernel]:
    """Those whose inputs and outputs take seconds to prepare come last, the largest at the end."""
    found = [*_library_kernels(), *_written_kernels(), *_shortest()]
    return sorted(found, key=lambda kernel: kernel.gigabytes)


def _written_kernels() -> list[HonestKernel]:
    found = [_library(f"gelu {name}", "F.gelu(x)", f"torch.randn({size})") for name, size in SIZES]
    for name, size in (("1 MB", 1 << 18), ("16 MB", 1 << 22), ("256 MB", 1 << 26)):
        task = task_source("torch.relu(x)", f"torch.randn({size})")
        raw = RAW.format(name=f"relu{size}", code=RELU_CODE)
        found.append(HonestKernel(name=f"raw relu {name}", task=task, candidate=task + raw))
    task = task_source("torch.relu(x)", f"torch.randn({1 << 22})")
    raw = RAW.format(name="sines", code=SINE_CODE)
    found.append(HonestKernel(name="raw sines 16 MB", task=task, candidate=task + raw))
    task = task_source("F.max_pool2d(x, 3, 1, 1)", "torch.rand(32, 64, 512, 512)")
    raw = RAW.format(name="pool", code=POOL_CODE)
    found.append(HonestKernel(name="pool 2 GB", task=task, candidate=task + raw))
    for name, size in (("10 KB", 2560), ("64 MB", 1 << 24)):
        task = task_source("torch.relu(x)", f"torch.randn({size})")
        found.append(HonestKernel(name=f"triton relu {name}", task=task, candidate=task + TRITON))
    return found


def _library_kernels() -> list[HonestKernel]:
    """Return torch's own kernels that move bytes, then those that multiply, then small ones."""
    return [*_moving_kernels(), *_product_kernels(), *_small_kernels()]


def _moving_kernels() -> list[HonestKernel]:
    return [
        _library("add 64 MB", "x + y", "torch.randn(1 << 24)", "torch.randn(1 << 24)"),
        _library("clone 128 MB", "x.clone()", "torch.randn(1 << 25)"),
        _library("transpose 64 MB", "x.t().contiguous()", "torch.randn(4096, 4096)"),
        _library("softmax 64 MB", "torch.softmax(x, -1)", "torch.randn(4096, 4096)"),
        _library(
            "layer norm 128 MB", "self.norm(x)", "torch.randn(8192, 4096)",
            init="self.norm = nn.LayerNorm(4096)",
        ),
        _library(
            "batch norm 102 MB", "self.norm(x)", "torch.randn(32, 256, 56, 56)",
            init="self.norm = nn.BatchNorm2d(256)",
        ),
        _library("sum 256 MB", "x.sum(-1)", "torch.randn(8192, 8192)"),
        _library("outer 256 MB", "torch.outer(x, y)", *["torch.randn(8192)"] * 2),
        _library("outer 2 GB", "torch.outer(x, y)", "torch.randn(16384)", "torch.randn(32768)"),
        _library("sum 8 GB", "x.sum(-1)", "torch.randn(32768, 65536)"),
        _library("max pool 205 MB", "F.max_pool2d(x, 2)", "torch.randn(64, 64, 112, 112)"),
        _library("cumsum 64 MB", "x.cumsum(-1)", "torch.randn(4096, 4096)"),
        _library("sort 16 MB", "x.sort(-1).values", "torch.randn(4096, 1024)"),
        _library(
            "embedding", "self.table(x)", "torch.randint(0, 50000, (64, 512))",
            init="self.table = nn.Embedding(50000, 512)",
        ),
    ]  # fmt: skip


def _product_kernels() -> list[HonestKernel]:
    half = "dtype=torch.bfloat16"
    return [
        _library("product 256", "x @ y", *["torch.randn(256, 256)"] * 2),
        _library("product 1024", "x @ y", *["torch.randn(1024, 1024)"] * 2),
        _library("product 4096", "x @ y", *["torch.randn(4096, 4096)"] * 2),
        _library("product 8192", "x @ y", *["torch.randn(8192, 8192)"] * 2),
        _library("product bf16 4096", "x @ y", *[f"torch.randn(4096, 4096, {half})"] * 2),
        _library("product bf16 8192", "x @ y", *[f"torch.randn(8192, 8192, {half})"] * 2),
        _library(
            "attention bf16", "F.scaled_dot_product_attention(x, y, z)",
            *[f"torch.randn(4, 16, 2048, 64, {half})"] * 3,
        ),
        _library(
            "convolution", "self.conv(x)", "torch.randn(32, 64, 56, 56)",
            init="self.conv = nn.Conv2d(64, 128, 3, padding=1)",
        ),
    ]  # fmt: skip


def _small_kernels() -> list[HonestKernel]:
    return [
        _library(
            "small layers", "self.layers(x)", "torch.randn(64, 256)",
            init="self.layers = nn.Sequential(*[nn.Linear(256, 256), nn.ReLU()] * 6)",
        ),
        _library(
            "small chain", "torch.tanh(torch.relu(x * 2 + 1) - 0.5) * 3", "torch.randn(64, 1024)"
        ),
    ]  # fmt: skip


SIZES = (
    ("10 KB", 2560),
    ("1 MB", 1 << 18),
    ("4 MB", 1 << 20),
    ("16 MB", 1 << 22),
    ("64 MB", 1 << 24),
    ("256 MB", 1 << 26),
    ("1 GB", 1 << 28),
    ("4 GB", 1 << 30),
)


def _for_host() -> list[HonestKernel]:
    return [
        *_shortest(),
        _library("relu 10 KB", "torch.relu(x)", "torch.randn(2560)"),
        _library("relu 1 MB", "torch.relu(x)", "torch.randn(1 << 18)"),
        _library("gelu 1 MB", "F.gelu(x)", "torch.randn(1 << 18)"),
        _library("gelu 16 MB", "F.gelu(x)", "torch.randn(1 << 22)"),
        _library("add 8 MB", "x + y", *["torch.randn(1 << 20)"] * 2),
        _library("softmax 4 MB", "torch.softmax(x, -1)", "torch.randn(1024, 1024)"),
        _library("sum 4 MB", "x.sum(-1)", "torch.randn(1024, 1024)"),
        _library("product 64", "x @ y", *["torch.randn(64, 64)"] * 2),
        _library("product 192", "x @ y", *["torch.randn(192, 192)"] * 2),
        _library("product 512", "x @ y", *["torch.randn(512, 512)"] * 2),
        _library("transpose 4 MB", "x.t().contiguous()", "torch.randn(1024, 1024)"),
        _library(
            "small layers", "self.layers(x)", "torch.randn(16, 128)",
            init="self.layers = nn.Sequential(*[nn.Linear(128, 128), nn.ReLU()] * 4)",
        ),
    ]  # fmt: skip
