"""torch::tensor from a list, arange, linspace."""
# ruff: noqa: E501 (the long lines are C++)

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
torch::Tensor literal() {
  auto a = torch::tensor({1.0, 2.5, -3.0});
  auto b = torch::arange(3, torch::kFloat32);
  return torch::cat({a, b, torch::linspace(0, 1, 3), torch::full({2}, 4.5), torch::eye(2).flatten()});
}
"""
module = load_inline(name="cpu_literal_tensor", cpp_sources=SOURCE, functions=["literal"])


def results():
    torch.manual_seed(0)
    return [module.literal()]
