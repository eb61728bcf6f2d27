"""Block reduction from cub."""

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <cub/cub.cuh>
template <int THREADS>
__global__ void row_sum(const float* x, float* out, int cols) {
  using Reduce = cub::BlockReduce<float, THREADS>;
  __shared__ typename Reduce::TempStorage room;
  float s = 0.f;
  for (int c = threadIdx.x; c < cols; c += THREADS) s += x[(int64_t)blockIdx.x * cols + c];
  s = Reduce(room).Sum(s);
  if (threadIdx.x == 0) out[blockIdx.x] = s;
}
torch::Tensor row_sums(torch::Tensor x) {
  auto out = torch::empty({x.size(0)}, x.options());
  row_sum<128><<<x.size(0), 128>>>(x.data_ptr<float>(), out.data_ptr<float>(), (int)x.size(1));
  return out;
}
"""
DECLARED = r"""
torch::Tensor row_sums(torch::Tensor x);
"""
module = load_inline(
    name="cuda_cub",
    cpp_sources=DECLARED,
    cuda_sources=SOURCE,
    functions=["row_sums"],
)


def results():
    torch.manual_seed(0)
    x = torch.randn(64, 256, device="cuda")
    return [module.row_sums(x)]
