"""AT_DISPATCH, a guard, the current stream."""
# ruff: noqa: E501 (the long lines are C++)

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
template <typename scalar_t>
__global__ void layernorm_kernel(const scalar_t* x, scalar_t* y, int cols, float eps) {
  extern __shared__ float shared[];
  const scalar_t* in = x + (int64_t)blockIdx.x * cols;
  float s = 0.f, ss = 0.f;
  for (int i = threadIdx.x; i < cols; i += blockDim.x) { float v = static_cast<float>(in[i]); s += v; ss += v * v; }
  shared[threadIdx.x] = s; shared[blockDim.x + threadIdx.x] = ss;
  __syncthreads();
  for (int o = blockDim.x / 2; o > 0; o >>= 1) {
    if (threadIdx.x < o) { shared[threadIdx.x] += shared[threadIdx.x + o]; shared[blockDim.x + threadIdx.x] += shared[blockDim.x + threadIdx.x + o]; }
    __syncthreads();
  }
  float mean = shared[0] / cols, by = rsqrtf(shared[blockDim.x] / cols - mean * mean + eps);
  for (int i = threadIdx.x; i < cols; i += blockDim.x) y[(int64_t)blockIdx.x * cols + i] = static_cast<scalar_t>((static_cast<float>(in[i]) - mean) * by);
}
at::Tensor layernorm(const at::Tensor& x, double eps) {
  const at::cuda::OptionalCUDAGuard guard(at::device_of(x));
  auto y = at::empty_like(x);
  int cols = x.size(-1), rows = x.numel() / cols;
  auto stream = at::cuda::getCurrentCUDAStream();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::ScalarType::Half, at::ScalarType::BFloat16, x.scalar_type(), "layernorm", ([&] {
    layernorm_kernel<scalar_t><<<rows, 128, 256 * sizeof(float), stream>>>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), cols, (float)eps);
  }));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}
"""
DECLARED = r"""
at::Tensor layernorm(const at::Tensor& x, double eps);
"""
module = load_inline(
    name="cuda_layernorm_dispatch",
    cpp_sources=DECLARED,
    cuda_sources=SOURCE,
    functions=["layernorm"],
    extra_cflags=["-O2"],
    extra_cuda_cflags=["-O2"],
)


def results():
    torch.manual_seed(0)
    x = torch.randn(64, 256, device="cuda")
    return [module.layernorm(x, 1e-5), module.layernorm(x.half(), 1e-5)]
