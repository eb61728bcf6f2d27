"""Four tasks with the candidates that a search would try: some good, some far behind, all correct.

In the order in which they are judged; each is beside the best one before it.
"""

from __future__ import annotations

from protocol.values import DeviceKind
from scripts.benchmarks.honest_kernels import (
    OWN_MODULE,
    RAW,
    RELU_CODE,
    TRITON,
    HonestKernel,
    task_source,
)

VARIANT = "\n\nclass ModelNew(Model):\n    def forward(self, {names}):\n        return {forward}\n"

CHAIN_CODE = r"""__device__ float chain(float x) { return tanhf(fmaxf(x * 2 + 1, 0) - 0.5f) * 3; }
__global__ void chain4(const float4* x, float4* z, long n) {
    long i = blockIdx.x * 128L + threadIdx.x;
    if (i < n) z[i] = make_float4(chain(x[i].x), chain(x[i].y), chain(x[i].z), chain(x[i].w));
}
extern "C" void run(const float4* x, float4* z, long n, cudaStream_t stream) {
    chain4<<<(n + 127) / 128, 128, 0, stream>>>(x, z, n);
}
"""
TRITON_SOFTMAX = """

import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x, z, width, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0).to(tl.int64) * width
    v = tl.load(x + row + at, at < width, -float("inf"))
    v = tl.exp(v - tl.max(v, 0))
    tl.store(z + row + at, v / tl.sum(v, 0), at < width)


class ModelNew(nn.Module):
    def forward(self, x):
        z = torch.empty_like(x)
        width = x.shape[-1]
        softmax_kernel[(x.numel() // width,)](x, z, width, BLOCK=triton.next_power_of_2(width))
        return z
"""


def mixed_candidates(device: DeviceKind) -> list[HonestKernel]:
    """Return fourteen candidates of four tasks, those of one task together; nine on a host."""
    is_card = device == "cuda"
    return [*_memory(is_card), *_rows(is_card), *_launches(is_card), *_products(is_card)]


def _candidates(
    name: str, forward: str, inputs: tuple[str, ...], candidates: dict[str, str], init: str = "pass"
) -> list[HonestKernel]:
    """Make candidates of one task; a text without lines is the value that `forward` returns."""
    task = task_source(forward, *inputs, init=init)
    names = ", ".join("xyzw"[: len(inputs)])
    return [
        HonestKernel(
            name=f"{name}: {what}",
            task=task,
            candidate=task + (text if "\n" in text else VARIANT.format(names=names, forward=text)),
        )
        for what, text in candidates.items()
    ]


def _memory(is_card: bool) -> list[HonestKernel]:
    found = {"in two passes": "torch.clamp_min(x + 0.0, 0.0)"}
    if is_card:
        raw = RAW.format(name="mixed_relu", code=RELU_CODE)
        found = {"triton": TRITON, **found, "raw": raw}
    found["clamped"] = "torch.clamp_min(x, 0.0)"
    size = "1 << 26" if is_card else "1 << 20"
    return _candidates("relu", "torch.relu(x)", (f"torch.randn({size})",), found)


def _rows(is_card: bool) -> list[HonestKernel]:
    found = {
        "by hand": "(x - x.amax(-1, True)).exp() / (x - x.amax(-1, True)).exp().sum(-1, True)",
        "its own module": OWN_MODULE,
    }
    if is_card:
        found = {"triton": TRITON_SOFTMAX, **found}
    rows = "4096, 4096" if is_card else "512, 1024"
    return _candidates("softmax", "torch.softmax(x, -1)", (f"torch.randn({rows})",), found)


def _launches(is_card: bool) -> list[HonestKernel]:
    found = {
        "in place": "x.mul(2).add_(1).relu_().sub_(0.5).tanh_().mul_(3)",
        "its own module": OWN_MODULE,
    }
    if is_card:
        raw = RAW.format(name="mixed_chain", code=CHAIN_CODE)
        triton = TRITON.replace(
            "tl.maximum(tl.load(x + at, at < n), 0.0)",
            "6 / (1 + tl.exp(1 - 2 * tl.maximum(tl.load(x + at, at < n) * 2 + 1, 0.0))) - 3",
        )
        found = {"raw": raw, **found, "triton": triton}
    chain = "torch.tanh(torch.relu(x * 2 + 1) - 0.5) * 3"
    return _candidates("chain", chain, ("torch.randn(64, 1024)",), found)


def _products(is_card: bool) -> list[HonestKernel]:
    size = 1024 if is_card else 256
    inputs = (f"torch.randn({size}, {size})",)
    return _candidates(
        "layer",
        "F.gelu(self.layer(x))",
        inputs,
        {
            "its own module": OWN_MODULE,
            "in two halves": (
                "F.gelu(torch.cat([F.linear(half, self.layer.weight, self.layer.bias)"
                " for half in x.chunk(2)]))"
            ),
            "in place": "F.gelu(torch.mm(x, self.layer.weight.t()).add_(self.layer.bias))",
        },
        init=f"self.layer = nn.Linear({size}, {size})",
    )
