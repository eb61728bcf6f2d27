"""Headers named by the candidate alone."""

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/types.h>
#include <cuda_runtime.h>
__global__ void twice_kernel(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}
torch::Tensor twice(torch::Tensor x) {
  auto y = torch::empty_like(x);
  int n = x.numel();
  twice_kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
  return y;
}
"""
DECLARED = r"""
#include <torch/types.h>
#include <torch/csrc/utils/pybind.h>
torch::Tensor twice(torch::Tensor x);
"""
module = load_inline(
    name="cuda_no_implicit_headers",
    cpp_sources=DECLARED,
    cuda_sources=SOURCE,
    functions=["twice"],
    no_implicit_headers=True,
)


def results():
    torch.manual_seed(0)
    return [module.twice(torch.randn(17, 33, device="cuda"))]
