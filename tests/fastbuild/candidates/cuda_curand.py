"""curand's functions for kernels."""
# ruff: noqa: E501 (the long lines are C++)

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <curand_kernel.h>
__global__ void dropout(const float* x, float* y, float p, unsigned long long seed, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  curandStatePhilox4_32_10_t state; curand_init(seed, i, 0, &state);
  y[i] = curand_uniform(&state) < p ? 0.f : x[i] / (1.f - p);
}
torch::Tensor drop(torch::Tensor x, double p, int64_t seed) { auto y = torch::empty_like(x); int n = x.numel(); dropout<<<(n + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), y.data_ptr<float>(), (float)p, (unsigned long long)seed, n); return y; }
"""
module = load_inline(
    name="cuda_curand",
    cpp_sources="torch::Tensor drop(torch::Tensor x, double p, int64_t seed);",
    cuda_sources=SOURCE,
    functions=["drop"],
)


def results():
    torch.manual_seed(0)
    x = torch.ones(100000, device="cuda")
    y = module.drop(x, 0.25, 7)
    assert abs((y == 0).float().mean().item() - 0.25) < 0.01
    return [y]
