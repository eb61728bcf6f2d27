"""Two C++ files, of which one needs the header of torch::autograd::Function."""

import tempfile
from pathlib import Path

import torch
from torch.utils.cpp_extension import load

FUNCTION = r"""
#include <torch/extension.h>
struct Cube : public torch::autograd::Function<Cube> {
  static torch::Tensor forward(torch::autograd::AutogradContext* ctx, torch::Tensor x) {
    ctx->save_for_backward({x});
    return x * x * x;
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* ctx, torch::autograd::variable_list grads) {
    auto x = ctx->get_saved_variables()[0];
    return {3 * x * x * grads[0]};
  }
};
torch::Tensor cube(torch::Tensor x) { return Cube::apply(x); }
"""
MODULE = r"""
#include <torch/extension.h>
torch::Tensor cube(torch::Tensor x);
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("cube", &cube); }
"""
folder = Path(tempfile.mkdtemp())
(folder / "function.cpp").write_text(FUNCTION)
(folder / "module.cpp").write_text(MODULE)
module = load(
    name="cpu_autograd_files", sources=[str(folder / "function.cpp"), str(folder / "module.cpp")]
)


def results():
    torch.manual_seed(0)
    x = torch.randn(17, 33, requires_grad=True)
    y = module.cube(x)
    y.sum().backward()
    torch.testing.assert_close([y, x.grad], [x**3, 3 * x**2])
    return [y, x.grad]
