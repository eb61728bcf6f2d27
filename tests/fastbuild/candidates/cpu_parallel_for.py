"""at::parallel_for."""
# ruff: noqa: E501 (the long lines are C++)

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <ATen/Parallel.h>
torch::Tensor gelu(torch::Tensor x) {
  auto in = x.contiguous();
  auto out = torch::empty_like(in);
  const float* p = in.data_ptr<float>();
  float* q = out.data_ptr<float>();
  at::parallel_for(0, in.numel(), 64, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) q[i] = 0.5f * p[i] * (1.f + std::erf(p[i] * 0.70710678f));
  });
  return out;
}
"""
module = load_inline(
    name="cpu_parallel_for", cpp_sources=SOURCE, functions=["gelu"], extra_cflags=["-O3"]
)


def results():
    torch.manual_seed(0)
    x = torch.randn(17, 33)
    return [module.gelu(x)]
