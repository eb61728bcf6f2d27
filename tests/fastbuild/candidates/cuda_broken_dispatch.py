"""A name that does not exist, inside AT_DISPATCH."""
# ruff: noqa: E501 (the long lines are C++)

from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
template <typename scalar_t>
__global__ void twice_kernel(const scalar_t* x, scalar_t* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + x[i];
}
torch::Tensor twice(torch::Tensor x) {
  auto y = torch::empty_like(x);
  int n = x.numel();
  auto stream = at::cuda::getCurrentCUDAStream();
  AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), "twice", ([&] {
    twice_kernel<scalar_t><<<(n + 255) / 256, 256, 0, stream>>>(x.data_ptr<scalar_t>(), out.data_ptr<scalar_t>(), n);
  }));
  return y;
}
"""
module = load_inline(
    name="cuda_broken_dispatch",
    cpp_sources="torch::Tensor twice(torch::Tensor x);",
    cuda_sources=SOURCE,
    functions=["twice"],
)
