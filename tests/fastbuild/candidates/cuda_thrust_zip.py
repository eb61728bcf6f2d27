"""A sum of products of pairs, by thrust's zip iterator."""

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <thrust/device_ptr.h>
#include <thrust/execution_policy.h>
#include <thrust/functional.h>
#include <thrust/iterator/zip_iterator.h>
#include <thrust/transform_reduce.h>
#include <thrust/tuple.h>
struct Product {
  __host__ __device__ float operator()(const thrust::tuple<float, float>& pair) const {
    return thrust::get<0>(pair) * thrust::get<1>(pair);
  }
};
double dot(torch::Tensor a, torch::Tensor b) {
  TORCH_CHECK(a.numel() == b.numel(), "the sizes differ");
  auto first = thrust::device_pointer_cast(a.data_ptr<float>());
  auto second = thrust::device_pointer_cast(b.data_ptr<float>());
  auto begin = thrust::make_zip_iterator(thrust::make_tuple(first, second));
  auto policy = thrust::cuda::par.on(at::cuda::getCurrentCUDAStream());
  return thrust::transform_reduce(
      policy, begin, begin + a.numel(), Product(), 0.0f, thrust::plus<float>());
}
"""
module = load_inline(
    name="cuda_thrust_zip",
    cpp_sources="double dot(torch::Tensor a, torch::Tensor b);",
    cuda_sources=SOURCE,
    functions=["dot"],
)


def results():
    torch.manual_seed(0)
    a, b = torch.randint(-8, 8, (2, 4096), device="cuda").float()
    made = torch.tensor(module.dot(a, b), dtype=torch.float64)
    torch.testing.assert_close(made, (a.double() * b.double()).sum().cpu())
    return [made]
