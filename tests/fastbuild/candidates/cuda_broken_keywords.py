"""A module in the CUDA source with one py::arg too many for a function."""

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
template <typename T>
__global__ void scale_kernel(const T* x, T* y, T by, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = by * x[i];
}
template <typename T>
torch::Tensor scaled(torch::Tensor x, double by) {
  auto y = torch::empty_like(x);
  int n = x.numel();
  scale_kernel<T><<<(n + 255) / 256, 256>>>(x.data_ptr<T>(), y.data_ptr<T>(), static_cast<T>(by), n);
  return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.doc() = "scaling";
  m.def("scaled", &scaled<float>, "by * x", py::arg("x"), py::arg("by"), py::arg("to") = 2.0);
  m.def("scaled_double", [](torch::Tensor x) { return scaled<double>(x, 3.0); }, py::arg("x"));
}
"""  # noqa: E501 (the long lines are C++)
module = load_inline(name="cuda_broken_keywords", cpp_sources="", cuda_sources=SOURCE)


def results():
    torch.manual_seed(0)
    x = torch.randn(17, 33, device="cuda")
    made = [module.scaled(x), module.scaled(x=x, by=4.0), module.scaled_double(x.double())]
    torch.testing.assert_close(made, [2 * x, 4 * x, 3 * x.double()])
    return made
