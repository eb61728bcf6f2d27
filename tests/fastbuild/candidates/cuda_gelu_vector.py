"""float4 and fast math."""
# ruff: noqa: E501 (the long lines are C++)

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>

#include <math.h>
__device__ __forceinline__ float gelu(float x) {
  return 0.5f * x * (1.0f + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
}
__global__ void gelu_kernel(const float4* __restrict__ in, float4* __restrict__ out, int64_t n) {
  for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
    float4 v = in[i];
    v.x = gelu(v.x); v.y = gelu(v.y); v.z = gelu(v.z); v.w = gelu(v.w);
    out[i] = v;
  }
}
torch::Tensor gelu_forward(torch::Tensor x) {
  TORCH_CHECK(x.is_cuda() && x.scalar_type() == torch::kFloat32, "float32 on a card, please");
  auto in = x.contiguous();
  auto out = torch::empty_like(in);
  int64_t n = in.numel() / 4;
  int blocks = std::min<int64_t>((n + 255) / 256, 65535);
  gelu_kernel<<<blocks, 256>>>(reinterpret_cast<const float4*>(in.data_ptr<float>()), reinterpret_cast<float4*>(out.data_ptr<float>()), n);
  cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
  return out;
}
"""
DECLARED = r"""
torch::Tensor gelu_forward(torch::Tensor x);
"""
module = load_inline(
    name="cuda_gelu_vector",
    cpp_sources=DECLARED,
    cuda_sources=SOURCE,
    functions=["gelu_forward"],
    extra_cuda_cflags=["-O3", "--use_fast_math"],
)


def results():
    torch.manual_seed(0)
    x = torch.randn(64, 256, device="cuda")
    return [module.gelu_forward(x)]
