"""The named function does not exist."""

from torch.utils.cpp_extension import load_inline

SOURCE = r"""
torch::Tensor f(torch::Tensor x) { return x; }
"""
module = load_inline(name="broken_binding", cpp_sources=SOURCE, functions=["g"])
