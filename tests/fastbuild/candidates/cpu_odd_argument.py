"""An argument type that the table does not know."""

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <map>
torch::Tensor weighted(torch::Tensor x, std::map<std::string, double> weights) {
  return x * weights["a"] + weights["b"];
}
"""
module = load_inline(name="cpu_odd_argument", cpp_sources=SOURCE, functions=["weighted"])


def results():
    torch.manual_seed(0)
    x = torch.randn(17, 33)
    return [module.weighted(x, {"a": 2.0, "b": 1.0})]
