"""A torch::autograd::Function."""

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
struct Square : public torch::autograd::Function<Square> {
  static torch::Tensor forward(AutogradContext* ctx, torch::Tensor x, double by) {
    ctx->save_for_backward({x});
    ctx->saved_data["by"] = by;
    return x * x * by;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    auto x = ctx->get_saved_variables()[0];
    return {grads[0] * 2 * x * ctx->saved_data["by"].toDouble(), torch::Tensor()};
  }
};
torch::Tensor square(torch::Tensor x, double by) { return Square::apply(x, by); }
"""
module = load_inline(name="cpu_autograd", cpp_sources=SOURCE, functions=["square"])


def results():
    torch.manual_seed(0)
    x = torch.randn(17, 33, requires_grad=True)
    y = module.square(x, 3.0)
    y.sum().backward()
    torch.testing.assert_close([y, x.grad], [3 * x * x, 6 * x])
    return [y, x.grad]
