"""Formatting a tensor."""

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <sstream>
std::string told(torch::Tensor x) {
  std::ostringstream out;
  out << x << " " << x.sizes() << " " << x.dtype() << " " << x.device();
  return out.str();
}
"""
module = load_inline(name="cpu_stream_output", cpp_sources=SOURCE, functions=["told"])


def results():
    torch.manual_seed(0)
    return [torch.tensor([ord(sign) for sign in module.told(torch.ones(2, 2))])]
