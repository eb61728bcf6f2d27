"""Twelve fixed candidates, as agents write them: ten correct, one wrong, one that does not compile.

Each computes `gelu((x + b) * g) + r` in one kernel, with other choices and so with other text.
"""

from __future__ import annotations

from string import Template

from protocol.values import DeviceKind

ROWS = {"cpu": 512, "cuda": 8192}
WIDTH = {"cpu": 1024, "cuda": 4096}

TASK = Template('''\
"""gelu((x + b) * g) + r over $rows rows."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.b = nn.Parameter(torch.randn(width))
        self.g = nn.Parameter(torch.rand(width))

    def forward(self, x, r):
        return F.gelu((x + self.b) * self.g) + r


def get_inputs():
    return [torch.randn($rows, $width), torch.randn($rows, $width)]


def get_init_inputs():
    return [$width]
''')

MODULE = Template('''\
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
$source
"""

fused = load_inline(name="fused", $arguments, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.b = nn.Parameter(torch.randn(width))
        self.g = nn.Parameter(torch.rand(width))

    def forward(self, x, r):
        return fused.run(x, self.b, self.g, r)
''')

CPP = Template("""\
#include <torch/extension.h>
#include <cmath>

torch::Tensor run(torch::Tensor x, torch::Tensor b, torch::Tensor g, torch::Tensor r) {
  TORCH_CHECK(x.is_contiguous() && r.is_contiguous(), "contiguous inputs are expected");
  auto out = torch::empty_like(x);
  const long rows = x.size(0), width = x.size(1);
  const float *X = x.data_ptr<float>(), *B = b.data_ptr<float>(), *G = g.data_ptr<float>();
  const float* R = r.data_ptr<float>();
  float* O = out.data_ptr<float>();
  at::parallel_for(0, rows, $grain, [&](long first, long last) {
    for (long row = first; row < last; ++row) {
      $pragma
      for (long c = 0; c < width; ++c) {
        const float v = (X[row * width + c] + B[c]) * G[c];
        O[row * width + c] = 0.5f * v * (1.0f + std::erf(v * $root)) + R[row * width + c];
      }
    }
  });
  return $result;
}
""")

CUDA = Template("""\
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>

__device__ __forceinline__ float gelu(float v) {
  return 0.5f * v * (1.0f + erff(v * $root));
}

__global__ void fused(const float4* __restrict__ x, const float4* __restrict__ b,
                      const float4* __restrict__ g, const float4* __restrict__ r,
                      float4* __restrict__ out, long count, int width) {
  const long step = (long)gridDim.x * blockDim.x;
  #pragma unroll $unroll
  for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < count; i += step) {
    const int c = i % width;
    const float4 X = x[i], B = b[c], G = g[c], R = r[i];
    out[i] = make_float4(gelu((X.x + B.x) * G.x) + R.x, gelu((X.y + B.y) * G.y) + R.y,
                         gelu((X.z + B.z) * G.z) + R.z, gelu((X.w + B.w) * G.w) + R.w);
  }
}

torch::Tensor run(torch::Tensor x, torch::Tensor b, torch::Tensor g, torch::Tensor r) {
  TORCH_CHECK(x.is_contiguous() && r.is_contiguous(), "contiguous inputs are expected");
  auto out = torch::empty_like(x);
  const long count = x.numel() / 4;
  const int blocks = (count + $threads * $each - 1) / ($threads * $each);
  fused<<<blocks, $threads, 0, at::cuda::getCurrentCUDAStream()>>>(
      reinterpret_cast<const float4*>(x.data_ptr<float>()),
      reinterpret_cast<const float4*>(b.data_ptr<float>()),
      reinterpret_cast<const float4*>(g.data_ptr<float>()),
      reinterpret_cast<const float4*>(r.data_ptr<float>()),
      reinterpret_cast<float4*>(out.data_ptr<float>()), count, x.size(1) / 4);
  return $result;
}
""")

DECLARED = "torch::Tensor run(torch::Tensor x, torch::Tensor b, torch::Tensor g, torch::Tensor r);"
ROOT = "0.70710678f"
CPP_CHOICES = [
    {"grain": str(grain), "pragma": pragma}
    for grain in (1, 8, 32, 64, 128)
    for pragma in ("", "#pragma GCC ivdep")
]
CUDA_CHOICES = [
    {"threads": str(threads), "each": str(each), "unroll": str(each)}
    for threads in (128, 256, 512, 1024, 64)
    for each in (1, 2)
]


def task(device: DeviceKind) -> str:
    """Return the task's source."""
    return TASK.substitute(rows=ROWS[device], width=WIDTH[device])


def twelve_candidates(device: DeviceKind) -> dict[str, str]:
    """Return name -> source of the twelve candidates."""
    choices = CPP_CHOICES if device == "cpu" else CUDA_CHOICES
    sources = {
        f"right {number}": _module(device, choice, ROOT, "out")
        for number, choice in enumerate(choices)
    }
    sources["wrong"] = _module(device, choices[0], "0.5f", "out")
    sources["broken"] = _module(device, choices[0], ROOT, "result")
    return sources


def unbuilt_candidate(device: DeviceKind, number: int) -> str:
    """Return the first candidate with other text, so that no build of it is stored."""
    first = (CPP_CHOICES if device == "cpu" else CUDA_CHOICES)[0]
    return _module(device, first, ROOT, "out") + f"\n# {number}\n"


def _module(device: DeviceKind, choice: dict[str, str], root: str, result: str) -> str:
    if device == "cpu":
        source = CPP.substitute(choice, root=root, result=result)
        flags = 'extra_cflags=["-O3", "-ffast-math", "-fopenmp"]'
        arguments = f"cpp_sources=SOURCE, {flags}"
    else:
        source = CUDA.substitute(choice, root=root, result=result)
        arguments = f'cpp_sources="{DECLARED}", cuda_sources=SOURCE'
    return MODULE.substitute(source=source, arguments=arguments)
