"""Half and bfloat16 intrinsics, a module with keywords."""
# ruff: noqa: E501 (the long lines are C++)

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
__global__ void axpy(const __half2* x, __half2* y, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = __hfma2(__float2half2_rn(a), x[i], y[i]);
}
__global__ void halve(__nv_bfloat16* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = __float2bfloat16(__bfloat162float(y[i]) * 0.5f);
}
torch::Tensor half_ops(torch::Tensor x, torch::Tensor b) {
  auto y = torch::ones_like(x);
  int n = x.numel();
  axpy<<<(n / 2 + 255) / 256, 256>>>(reinterpret_cast<const __half2*>(x.data_ptr<at::Half>()), reinterpret_cast<__half2*>(y.data_ptr<at::Half>()), 2.0f, n / 2);
  halve<<<(n + 255) / 256, 256>>>(reinterpret_cast<__nv_bfloat16*>(b.data_ptr<at::BFloat16>()), n);
  return y;
}
"""
DECLARED = r"""
#include <torch/extension.h>
torch::Tensor half_ops(torch::Tensor x, torch::Tensor b);
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("half_ops", &half_ops, py::arg("x"), py::arg("b")); }
"""
module = load_inline(
    name="cuda_half",
    cpp_sources=DECLARED,
    cuda_sources=SOURCE,
    functions=None,
    extra_cuda_cflags=["-O3", "-U__CUDA_NO_HALF_OPERATORS__", "-U__CUDA_NO_HALF_CONVERSIONS__"],
)


def results():
    torch.manual_seed(0)
    x = torch.randn(64, 256, device="cuda")
    b = x.bfloat16()
    return [module.half_ops(x.half(), b), b]
