"""A semicolon is missing."""

from torch.utils.cpp_extension import load_inline

SOURCE = r"""
torch::Tensor f(torch::Tensor x) {
  auto y = x + 1
  return y;
}
"""
module = load_inline(name="broken_semicolon", cpp_sources=SOURCE, functions=["f"])
