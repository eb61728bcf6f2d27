"""A header that does not exist."""

from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <no_such_header.h>
torch::Tensor f(torch::Tensor x) { return x; }
"""
module = load_inline(name="broken_include", cpp_sources=SOURCE, functions=["f"])
