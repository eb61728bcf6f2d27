"""A misspelled name in a call of thrust."""

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <thrust/device_ptr.h>
#include <thrust/execution_policy.h>
#include <thrust/reduce.h>
#include <thrust/sort.h>
torch::Tensor sorted(torch::Tensor x) {
  auto y = x.clone();
  auto begin = thrust::device_pointer_cast(y.data_ptr<float>());
  thrust::sort(thrust::device, beginning, begin + y.numel());
  return y;
}
double total(torch::Tensor x) {
  auto begin = thrust::device_pointer_cast(x.data_ptr<float>());
  return thrust::reduce(thrust::device, begin, begin + x.numel(), 0.0f, thrust::plus<float>());
}
"""
module = load_inline(
    name="cuda_broken_thrust",
    cpp_sources="torch::Tensor sorted(torch::Tensor x); double total(torch::Tensor x);",
    cuda_sources=SOURCE,
    functions=["sorted", "total"],
)


def results():
    torch.manual_seed(0)
    x = torch.randperm(1024, device="cuda").float()
    made = [module.sorted(x), torch.tensor(module.total(x), dtype=torch.float64)]
    torch.testing.assert_close(made, [x.sort().values, x.sum(dtype=torch.float64).cpu()])
    return made
