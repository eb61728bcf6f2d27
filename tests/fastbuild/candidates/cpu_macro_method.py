"""A tensor method that no identifier names: a macro pastes its name."""

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#define CALL(left, right) left##right
torch::Tensor pasted(torch::Tensor x) { return x.CALL(sq, uare)(); }
"""
module = load_inline(name="cpu_macro_method", cpp_sources=SOURCE, functions=["pasted"])


def results():
    torch.manual_seed(0)
    x = torch.randn(17, 33)
    return [module.pasted(x)]
