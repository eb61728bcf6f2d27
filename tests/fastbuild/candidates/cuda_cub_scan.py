"""An inclusive sum of each row, by cub's scan of a block in a kernel of its own."""

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <cub/block/block_scan.cuh>
template <int THREADS>
__global__ void scan_rows(const float* x, float* y) {
  using Scan = cub::BlockScan<float, THREADS>;
  __shared__ typename Scan::TempStorage storage;
  float sum;
  int at = blockIdx.x * THREADS + threadIdx.x;
  Scan(storage).InclusiveSum(x[at], sum);
  y[at] = sum;
}
torch::Tensor sums(torch::Tensor x) {
  TORCH_CHECK(x.size(1) == 256, "256 columns are expected");
  auto y = torch::empty_like(x);
  scan_rows<256><<<x.size(0), 256>>>(x.data_ptr<float>(), y.data_ptr<float>());
  return y;
}
"""
module = load_inline(
    name="cuda_cub_scan",
    cpp_sources="torch::Tensor sums(torch::Tensor x);",
    cuda_sources=SOURCE,
    functions=["sums"],
)


def results():
    torch.manual_seed(0)
    x = torch.randint(-8, 8, (64, 256), device="cuda").float()
    made = module.sums(x)
    torch.testing.assert_close(made, x.cumsum(1))
    return [made]
