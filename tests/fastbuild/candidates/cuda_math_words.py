"""Device functions that have the names of torch's own."""
# ruff: noqa: E501 (the long lines are C++)

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>

__device__ float mixed(float x) {
  return fabsf(x) + abs(x) + exp(x) + max(x, 1.f) + min(x, 2.f) + sqrt(fabsf(x)) + floor(x) + ceil(x)
      + pow(x, 2.f) + log(fabsf(x) + 1) + round(x) + fmod(x, 2.f) + tanh(x) + erf(x) + (isnan(x) ? 1.f : 0.f);
}
__global__ void mix(const float* x, float* y, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = mixed(x[i]); }
torch::Tensor mixed_all(torch::Tensor x) {
  auto y = torch::empty_like(x);
  mix<<<(x.numel() + 127) / 128, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return torch::cat({y.sum(0), y.mean(0), y.t().reshape({-1})}, 0);
}
"""
DECLARED = r"""
torch::Tensor mixed_all(torch::Tensor x);
"""
module = load_inline(
    name="cuda_math_words",
    cpp_sources=DECLARED,
    cuda_sources=SOURCE,
    functions=["mixed_all"],
)


def results():
    torch.manual_seed(0)
    x = torch.randn(64, 256, device="cuda")
    return [module.mixed_all(x)]
