"""Arguments that no overload takes."""

from torch.utils.cpp_extension import load_inline

SOURCE = r"""
torch::Tensor f(torch::Tensor x) {
  return torch::softmax(x, "rows", x);
}
"""
module = load_inline(name="broken_argument", cpp_sources=SOURCE, functions=["f"])
