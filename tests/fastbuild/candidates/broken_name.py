"""An undeclared name."""

from torch.utils.cpp_extension import load_inline

SOURCE = r"""
torch::Tensor f(torch::Tensor x) {
  return x * factor;
}
"""
module = load_inline(name="broken_name", cpp_sources=SOURCE, functions=["f"])
