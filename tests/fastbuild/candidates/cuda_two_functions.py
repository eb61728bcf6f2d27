"""Two kernels, anonymous namespace, two functions."""
# ruff: noqa: E501 (the long lines are C++)

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>

namespace {
__global__ void up(float* x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] += 1.f; }
__global__ void down(float* x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] -= 2.f; }
}
void go_up(torch::Tensor x) { up<<<(x.numel() + 127) / 128, 128>>>(x.data_ptr<float>(), x.numel()); }
torch::Tensor go_down(torch::Tensor x) { auto y = x.clone(); down<<<(y.numel() + 127) / 128, 128>>>(y.data_ptr<float>(), y.numel()); return y; }
"""
DECLARED = r"""
void go_up(torch::Tensor x);
torch::Tensor go_down(torch::Tensor x);
"""
module = load_inline(
    name="cuda_two_functions",
    cpp_sources=DECLARED,
    cuda_sources=SOURCE,
    functions=["go_up", "go_down"],
)


def results():
    torch.manual_seed(0)
    x = torch.randn(64, 256, device="cuda")
    module.go_up(x)
    return [module.go_down(x), x]
