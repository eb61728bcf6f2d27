"""An operator with a float parameter: TORCH_LIBRARY takes double alone."""

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <torch/library.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
__global__ void scale_add_kernel(const float* x, const float* y, float* z, float by, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) z[i] = by * x[i] + y[i];
}
at::Tensor scale_add(const at::Tensor& x, const at::Tensor& y, float by) {
  const at::cuda::OptionalCUDAGuard guard(device_of(x));
  auto z = at::empty_like(x);
  int n = x.numel();
  scale_add_kernel<<<(n + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), y.data_ptr<float>(), z.data_ptr<float>(), by, n);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return z;
}
TORCH_LIBRARY(stark_broken_operator, m) {
  m.def("scale_add(Tensor x, Tensor y, float by) -> Tensor");
}
TORCH_LIBRARY_IMPL(stark_broken_operator, CUDA, m) {
  m.impl("scale_add", &scale_add);
}
"""
load_inline(
    name="cuda_broken_operator",
    cpp_sources="",
    cuda_sources=SOURCE,
    extra_cuda_cflags=["-O3"],
    is_python_module=False,
)


def results():
    torch.manual_seed(0)
    x = torch.randn(17, 33, device="cuda")
    made = [torch.ops.stark_broken_operator.scale_add(x, x, 3.0)]
    torch.testing.assert_close(made, [3 * x + x])
    return made
