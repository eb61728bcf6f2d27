"""A template without its argument."""

from torch.utils.cpp_extension import load_inline

SOURCE = r"""
template <typename T>
T first(const float* p) { return T(p[0]); }
torch::Tensor f(torch::Tensor x) {
  auto v = first(x.data_ptr<float>());
  return x + v;
}
"""
module = load_inline(name="broken_template", cpp_sources=SOURCE, functions=["f"])
