"""A result of another type than the declared one."""

from torch.utils.cpp_extension import load_inline

SOURCE = r"""
torch::Tensor f(torch::Tensor x) {
  return std::vector<torch::Tensor>{x, x};
}
"""
module = load_inline(name="broken_return", cpp_sources=SOURCE, functions=["f"])
