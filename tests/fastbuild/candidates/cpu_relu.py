"""The smallest C++ candidate."""

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
torch::Tensor relu(torch::Tensor x) {
  auto in = x.contiguous();
  auto out = torch::empty_like(in);
  const float* p = in.data_ptr<float>();
  float* q = out.data_ptr<float>();
  for (int64_t i = 0; i < in.numel(); ++i) q[i] = p[i] > 0 ? p[i] : 0;
  return out;
}
"""
module = load_inline(name="cpu_relu", cpp_sources=SOURCE, functions=["relu"])


def results():
    torch.manual_seed(0)
    x = torch.randn(17, 33)
    return [module.relu(x)]
