"""Functions with docstrings of their own."""

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
void fill(torch::Tensor x, double value) { x.fill_(value); }
int64_t count(const torch::Tensor& x) { return x.numel(); }
bool flat(torch::Tensor x) { return x.dim() == 1; }
"""
module = load_inline(
    name="cpu_documented",
    cpp_sources=SOURCE,
    functions={"fill": "fill it", "count": "how many", "flat": "one dimension?"},
)


def results():
    torch.manual_seed(0)
    x = torch.randn(17, 33)
    module.fill(x, 2.0)
    return [x, torch.tensor(module.count(x)), torch.tensor(module.flat(x))]
