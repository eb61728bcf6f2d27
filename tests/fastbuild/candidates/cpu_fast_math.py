"""Intrinsics and -ffast-math."""

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <immintrin.h>
torch::Tensor saxpy(torch::Tensor x, torch::Tensor y, double a) {
  auto out = torch::empty_like(x);
  const float *p = x.data_ptr<float>(), *q = y.data_ptr<float>();
  float* r = out.data_ptr<float>();
  int64_t i = 0, n = x.numel();
  const __m128 by = _mm_set1_ps(float(a));
  for (; i + 4 <= n; i += 4)
    _mm_storeu_ps(r + i, _mm_add_ps(_mm_mul_ps(by, _mm_loadu_ps(p + i)), _mm_loadu_ps(q + i)));
  for (; i < n; ++i) r[i] = float(a) * p[i] + q[i];
  return out;
}
"""
module = load_inline(
    name="cpu_fast_math",
    cpp_sources=SOURCE,
    functions=["saxpy"],
    extra_cflags=["-O3", "-ffast-math"],
)


def results():
    torch.manual_seed(0)
    x = torch.randn(17, 33)
    return [module.saxpy(x, x + 1, 2.5)]
