"""Many kinds of arguments, a list of tensors as the result."""

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
std::vector<torch::Tensor> many(torch::Tensor x, double scale, bool keep, int64_t count,
    std::vector<int64_t> shape, c10::optional<torch::Tensor> mask, const std::string& word,
    std::vector<torch::Tensor> rest, c10::optional<double> extra, int small, float narrow) {
  auto y = x * scale + count + small + narrow + extra.value_or(0.25);
  if (mask.has_value()) y = y * mask.value();
  if (keep && word == "view") y = y.view(shape);
  for (auto& one : rest) y = y + one.sum();
  return {y, x.reshape({-1})};
}
"""
module = load_inline(name="cpu_many_arguments", cpp_sources=SOURCE, functions=["many"])


def results():
    torch.manual_seed(0)
    x = torch.randn(17, 33)
    mask = torch.ones(17, 33)
    return module.many(x, 2.0, True, 3, [33, 17], mask, "view", [x, x], None, 4, 0.5)
