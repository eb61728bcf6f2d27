"""Functions with types that the table does not know."""
# ruff: noqa: E501 (the long lines are C++)

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <map>
#include <string>
#include <tuple>
#include <vector>
__global__ void add(const float* x, float* y, float a, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = x[i] + a; }
std::map<std::string, torch::Tensor> stats(torch::Tensor x, const std::map<std::string, double>& params, std::pair<int, int> dims) {
  auto y = torch::empty_like(x);
  int n = x.numel();
  add<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), (float)params.at("shift"), n);
  return {{"shifted", y}, {"sum", y.sum(dims.first)}};
}
std::tuple<torch::Tensor, int64_t, bool> with_size(torch::Tensor x, std::vector<std::vector<int64_t>> shapes) {
  return {x.reshape(shapes[0]), x.numel(), x.is_cuda()};
}
"""
CPP = """
#include <map>
std::map<std::string, torch::Tensor> stats(torch::Tensor x, const std::map<std::string, double>& params, std::pair<int, int> dims);
std::tuple<torch::Tensor, int64_t, bool> with_size(torch::Tensor x, std::vector<std::vector<int64_t>> shapes);
"""
module = load_inline(
    name="cuda_odd_types", cpp_sources=CPP, cuda_sources=SOURCE, functions=["stats", "with_size"]
)


def results():
    torch.manual_seed(0)
    x = torch.randn(8, 16, device="cuda")
    y = module.stats(x, {"shift": 2.0}, (1, 0))
    torch.testing.assert_close([y["shifted"], y["sum"]], [x + 2, (x + 2).sum(1)])
    z, n, c = module.with_size(x, [[4, 32]])
    assert (n, c) == (128, True)
    return [y["shifted"], z]
