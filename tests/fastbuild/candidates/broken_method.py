"""A method that tensors do not have."""

from torch.utils.cpp_extension import load_inline

SOURCE = r"""
torch::Tensor f(torch::Tensor x) {
  auto y = x.contiguous();
  return y.softmaxed(1);
}
"""
module = load_inline(name="broken_method", cpp_sources=SOURCE, functions=["f"])
