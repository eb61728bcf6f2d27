"""One architecture, named by the candidate."""

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <cuda_fp16.h>
__global__ void twice_kernel(const half2* x, half2* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = __hadd2(x[i], x[i]);
}
torch::Tensor twice(torch::Tensor x) {
  auto y = torch::empty_like(x);
  int n = x.numel() / 2;
  twice_kernel<<<(n + 255) / 256, 256>>>(
      reinterpret_cast<const half2*>(x.data_ptr<at::Half>()),
      reinterpret_cast<half2*>(y.data_ptr<at::Half>()), n);
  return y;
}
"""
module = load_inline(
    name="cuda_architecture",
    cpp_sources="torch::Tensor twice(torch::Tensor x);",
    cuda_sources=SOURCE,
    functions=["twice"],
    extra_cuda_cflags=["-gencode=arch=compute_90a,code=sm_90a"],
)


def results():
    torch.manual_seed(0)
    x = torch.randn(16, 32, device="cuda").half()
    made = [module.twice(x)]
    torch.testing.assert_close(made, [2 * x])
    return made
