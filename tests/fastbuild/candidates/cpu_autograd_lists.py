"""Two torch::autograd::Functions: lists, optional and changed tensors, errors both ways."""

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
using namespace torch::autograd;
struct Pair : public Function<Pair> {
  static variable_list forward(AutogradContext* ctx, at::TensorList xs, std::optional<at::Tensor> b,
                               int64_t power, const std::string& name, bool flag) {
    ctx->save_for_backward({xs[0], xs[1]});
    ctx->saved_data["power"] = power;
    ctx->saved_data["name"] = name;
    ctx->saved_data["bias"] = b.has_value();
    ctx->saved_data["list"] = std::vector<int64_t>{1, 2, 3};
    auto sum = xs[0] * xs[1];
    if (b.has_value()) sum = sum + *b;
    auto sign = xs[0] > 0;
    ctx->mark_non_differentiable({sign});
    ctx->set_materialize_grads(flag);
    return {sum, sign};
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    auto saved = ctx->get_saved_variables();
    TORCH_CHECK(ctx->saved_data["list"].toIntVector().size() == 3, "a list of three is expected");
    TORCH_CHECK(ctx->saved_data["name"].toStringRef() != "raise", "raised in backward");
    auto scale = (double)ctx->saved_data["power"].toInt();
    torch::Tensor b;
    if (ctx->saved_data["bias"].toBool() && ctx->needs_input_grad(2)) b = grads[0];
    return {grads[0] * saved[1], grads[0] * saved[0] * scale, b, {}, {}, {}};
  }
};
struct Negated : public torch::autograd::Function<Negated> {
  static torch::Tensor forward(AutogradContext* ctx, torch::Tensor x) {
    x.neg_();
    ctx->mark_dirty({x});
    return x;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) { return {-grads[0]}; }
};
std::vector<torch::Tensor> pair(std::vector<torch::Tensor> xs, std::optional<torch::Tensor> b,
                                int64_t power, std::string name) {
  return Pair::apply(at::TensorList(xs), b, power, name, true);
}
torch::Tensor negated(torch::Tensor x) { return Negated::apply(x); }
"""
module = load_inline(name="cpu_autograd_lists", cpp_sources=SOURCE, functions=["pair", "negated"])


def raised(call):
    try:
        call()
    except RuntimeError as error:
        return letters(str(error).splitlines()[0])
    return torch.zeros(0)


def letters(text):
    return torch.tensor(list(text.encode()))


def results():
    torch.manual_seed(0)
    x, y, b = (torch.randn(5, 7, requires_grad=True) for _ in range(3))
    total, sign = module.pair([x, y], b, 2, "pair")
    names = [letters(total.grad_fn.name()), torch.tensor(sign.requires_grad)]
    total.sum().backward()
    alone, _ = module.pair([x.detach(), y], None, 2, "alone")
    alone.sum().backward()
    z = torch.randn(3, requires_grad=True)
    w = z * 2
    negated = module.negated(w)
    negated.sum().backward()
    torch.testing.assert_close([x.grad, y.grad, b.grad], [y, 4 * x, torch.ones(5, 7)])
    errors = [
        raised(lambda: module.pair([x, y], b, 2, "raise")[0].sum().backward()),
        raised(lambda: torch.func.grad(lambda t: module.negated(t * 1).sum())(z)),
    ]
    return [total, sign, alone, x.grad, y.grad, b.grad, negated, z.grad, *names, *errors]
