"""extern "C" functions and raw pointers."""
# ruff: noqa: E501 (the long lines are C++)

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cuda_runtime.h>
#include <stdint.h>
extern "C" __global__ void __launch_bounds__(256, 4) scale(const float4* __restrict__ x, float4* __restrict__ y, float a, int n4) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i < n4) { float4 v = __ldg(x + i); y[i] = make_float4(a * v.x, a * v.y, a * v.z, a * v.w); }
}
extern "C" int launch_scale(const void* x, void* y, float a, int n, void* stream) {
  scale<<<(n / 4 + 255) / 256, 256, 0, (cudaStream_t)stream>>>((const float4*)x, (float4*)y, a, n / 4);
  return (int)cudaGetLastError();
}
"""
CPP = r"""
#include <torch/extension.h>
extern "C" int launch_scale(const void* x, void* y, float a, int n, void* stream);
torch::Tensor scaled(torch::Tensor x, double a, int64_t stream) {
  auto y = torch::empty_like(x);
  int status = launch_scale(x.data_ptr(), y.data_ptr(), (float)a, (int)x.numel(), reinterpret_cast<void*>(stream));
  TORCH_CHECK(status == 0, "launch failed: ", status);
  return y;
}
"""
module = load_inline(
    name="cuda_extern_c", cpp_sources=CPP, cuda_sources=SOURCE, functions=["scaled"]
)


def results():
    torch.manual_seed(0)
    x = torch.randn(4096, device="cuda")
    y = module.scaled(x, 3.0, torch.cuda.current_stream().cuda_stream)
    torch.testing.assert_close(y, 3 * x)
    return [y]
