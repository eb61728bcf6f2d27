"""Headers named by the candidate alone, without the umbrella header."""

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <ATen/ATen.h>
#include <torch/csrc/utils/pybind.h>
at::Tensor twice(at::Tensor x) { return at::mul(x, 2); }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("twice", &twice, "two times", py::arg("x"));
}
"""
module = load_inline(name="cpu_no_implicit_headers", cpp_sources=SOURCE, no_implicit_headers=True)


def results():
    torch.manual_seed(0)
    x = torch.randn(17, 33)
    made = [module.twice(x)]
    torch.testing.assert_close(made, [2 * x])
    return made
