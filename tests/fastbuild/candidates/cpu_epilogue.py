"""Library calls with an epilogue under no-grad."""

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
torch::Tensor linear(torch::Tensor x, torch::Tensor w, torch::Tensor b) {
  torch::NoGradGuard guard;
  auto y = at::addmm(b, x, w.t());
  y.clamp_min_(0).mul_(1.5).add_(0.5);
  auto z = torch::sigmoid(y) * torch::tanh(y);
  return torch::softmax(z - z.amax(1, true), 1);
}
"""
module = load_inline(name="cpu_epilogue", cpp_sources=SOURCE, functions=["linear"])


def results():
    torch.manual_seed(0)
    x = torch.randn(17, 33)
    return [module.linear(x, torch.randn(9, 33), torch.randn(9))]
