"""torch has no such function."""

from torch.utils.cpp_extension import load_inline

SOURCE = r"""
torch::Tensor f(torch::Tensor x) {
  return torch::soft_max_rows(x);
}
"""
module = load_inline(name="broken_function", cpp_sources=SOURCE, functions=["f"])
