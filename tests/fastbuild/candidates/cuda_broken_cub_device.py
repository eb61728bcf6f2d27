"""A function that cub's device sums do not have."""

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <cub/cub.cuh>
torch::Tensor total(torch::Tensor x) {
  auto y = torch::empty({1}, x.options());
  size_t bytes = 0;
  cub::DeviceReduce::Total(nullptr, bytes, x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  auto room = torch::empty({(long)bytes}, x.options().dtype(torch::kUInt8));
  cub::DeviceReduce::Total(room.data_ptr(), bytes, x.data_ptr<float>(), y.data_ptr<float>(),
                           x.numel());
  return y;
}
"""
module = load_inline(
    name="cuda_broken_cub_device",
    cpp_sources="torch::Tensor total(torch::Tensor x);",
    cuda_sources=SOURCE,
    functions=["total"],
)


def results():
    torch.manual_seed(0)
    x = torch.randint(-8, 8, (4096,), device="cuda").float()
    made = [module.total(x)]
    torch.testing.assert_close(made, [x.sum().view(1)])
    return made
