"""`functions` names what the source does not declare."""

from torch.utils.cpp_extension import load_inline

SOURCE = r"""
torch::Tensor forward_cpu(torch::Tensor x) {
  return x + 1;
}
"""
module = load_inline(name="broken_listed", cpp_sources=SOURCE, functions=["forward"])
