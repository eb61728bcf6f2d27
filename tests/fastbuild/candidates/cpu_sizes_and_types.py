"""Sizes, a dtype and a device as arguments."""

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
torch::Tensor made(at::IntArrayRef sizes, at::ScalarType dtype, at::Device device) {
  return torch::ones(sizes, torch::dtype(dtype).device(device)) * 3;
}
std::vector<int64_t> shape(torch::Tensor x) { return x.sizes().vec(); }
double total(torch::Tensor x) { return x.sum().item().toDouble(); }
"""
module = load_inline(
    name="cpu_sizes_and_types", cpp_sources=SOURCE, functions=["made", "shape", "total"]
)


def results():
    torch.manual_seed(0)
    x = torch.randn(17, 33)
    return [module.made([2, 3], torch.float64, torch.device("cpu")), torch.tensor(module.shape(x))]
