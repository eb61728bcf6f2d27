"""A radix sort of pairs and sums of segments, by cub's device functions."""

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <cub/cub.cuh>
torch::Tensor scratch(size_t bytes, const torch::Tensor& like) {
  return torch::empty({static_cast<int64_t>(bytes)}, like.options().dtype(torch::kUInt8));
}
torch::Tensor order(torch::Tensor x) {
  int count = x.numel();
  auto from = torch::arange(count, x.options().dtype(torch::kInt32));
  auto to = torch::empty_like(from);
  auto sorted = torch::empty_like(x);
  auto stream = at::cuda::getCurrentCUDAStream();
  size_t bytes = 0;
  cub::DeviceRadixSort::SortPairs(nullptr, bytes, x.data_ptr<float>(), sorted.data_ptr<float>(),
                                  from.data_ptr<int>(), to.data_ptr<int>(), count, 0, 32, stream);
  auto room = scratch(bytes, x);
  cub::DeviceRadixSort::SortPairs(room.data_ptr(), bytes, x.data_ptr<float>(),
                                  sorted.data_ptr<float>(), from.data_ptr<int>(),
                                  to.data_ptr<int>(), count, 0, 32, stream);
  return to;
}
torch::Tensor sums(torch::Tensor x, torch::Tensor offsets) {
  int count = offsets.numel() - 1;
  auto y = torch::empty({count}, x.options());
  auto stream = at::cuda::getCurrentCUDAStream();
  const int* begins = offsets.data_ptr<int>();
  size_t bytes = 0;
  cub::DeviceSegmentedReduce::Sum(nullptr, bytes, x.data_ptr<float>(), y.data_ptr<float>(), count,
                                  begins, begins + 1, stream);
  auto room = scratch(bytes, x);
  cub::DeviceSegmentedReduce::Sum(room.data_ptr(), bytes, x.data_ptr<float>(), y.data_ptr<float>(),
                                  count, begins, begins + 1, stream);
  return y;
}
"""
module = load_inline(
    name="cuda_cub_segments",
    cpp_sources="""torch::Tensor order(torch::Tensor x);
torch::Tensor sums(torch::Tensor x, torch::Tensor offsets);""",
    cuda_sources=SOURCE,
    functions=["order", "sums"],
)


def results():
    torch.manual_seed(0)
    x = torch.randperm(2048, device="cuda").float()
    offsets = torch.arange(0, 2049, 32, device="cuda", dtype=torch.int32)
    made = [module.order(x), module.sums(x, offsets)]
    expected = [x.argsort().int(), x.view(64, 32).sum(1)]
    torch.testing.assert_close(made, expected)
    return made
