"""A library call with a kernel after it."""
# ruff: noqa: E501 (the long lines are C++)

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
__global__ void bias_relu(float* y, const float* bias, int n, int cols) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { float v = y[i] + bias[i % cols]; y[i] = v > 0.f ? v : 0.f; }
}
torch::Tensor linear(torch::Tensor x, torch::Tensor w, torch::Tensor bias) {
  auto y = at::matmul(x, w.t()).contiguous();
  int n = y.numel(), cols = y.size(1);
  cudaStream_t stream = at::cuda::getCurrentCUDAStream().stream();
  bias_relu<<<(n + 255) / 256, 256, 0, stream>>>(y.data_ptr<float>(), bias.data_ptr<float>(), n, cols);
  AT_CUDA_CHECK(cudaGetLastError());
  auto z = torch::sigmoid(y).mul_(2.0).add(1);
  return torch::softmax(z - std::get<0>(torch::max(z, 1, true)), 1);
}
"""
DECLARED = r"""
torch::Tensor linear(torch::Tensor x, torch::Tensor w, torch::Tensor bias);
"""
module = load_inline(
    name="cuda_matmul_epilogue",
    cpp_sources=DECLARED,
    cuda_sources=SOURCE,
    functions=["linear"],
)


def results():
    torch.manual_seed(0)
    x = torch.randn(64, 256, device="cuda")
    return [module.linear(x, torch.randn(32, 256, device="cuda"), torch.randn(32, device="cuda"))]
