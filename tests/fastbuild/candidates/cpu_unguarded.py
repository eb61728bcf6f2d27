"""Without torch's error handling."""

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
torch::Tensor halved(torch::Tensor x) { return x / 2; }
"""
module = load_inline(
    name="cpu_unguarded",
    cpp_sources=SOURCE,
    functions=["halved"],
    with_pytorch_error_handling=False,
)


def results():
    torch.manual_seed(0)
    x = torch.randn(17, 33)
    return [module.halved(x)]
