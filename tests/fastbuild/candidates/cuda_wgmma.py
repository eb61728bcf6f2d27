"""wgmma in inline PTX, for sm_90a."""
# ruff: noqa: E501 (the long lines are C++)

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <cuda_bf16.h>
#include <cstdint>
__device__ __forceinline__ uint64_t enc(uint64_t x) { return (x & 0x3FFFF) >> 4; }
__device__ __forceinline__ uint64_t desc_of(const void* p) {
  uint64_t d = enc(static_cast<uint64_t>(__cvta_generic_to_shared(p)));
  d |= enc(128) << 16;   // core matrices along k
  d |= enc(256) << 32;   // core matrices along m or n
  return d;
}
// D[64x8] = A[64x16] B[16x8]^T, no swizzle
__global__ void tile(const __nv_bfloat16* a, const __nv_bfloat16* b, float* d) {
  __shared__ alignas(128) __nv_bfloat16 sa[64 * 16];
  __shared__ alignas(128) __nv_bfloat16 sb[8 * 16];
  for (int i = threadIdx.x; i < 64 * 16; i += 128) { int r = i / 16, c = i % 16; sa[(r / 8) * 128 + (c / 8) * 64 + (r % 8) * 8 + c % 8] = a[i]; }
  for (int i = threadIdx.x; i < 8 * 16; i += 128) { int r = i / 16, c = i % 16; sb[(r / 8) * 128 + (c / 8) * 64 + (r % 8) * 8 + c % 8] = b[i]; }
  asm volatile("fence.proxy.async;\n" ::: "memory");
  __syncthreads();
  float r[4] = {0, 0, 0, 0};
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %6, 0;\n"
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, %4, %5, p, 1, 1, 0, 0;\n}\n"
    : "+f"(r[0]), "+f"(r[1]), "+f"(r[2]), "+f"(r[3]) : "l"(desc_of(sa)), "l"(desc_of(sb)), "r"(0));
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;\n" ::: "memory");
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int row = warp * 16 + lane / 4, col = (lane % 4) * 2;
  d[row * 8 + col] = r[0]; d[row * 8 + col + 1] = r[1];
  d[(row + 8) * 8 + col] = r[2]; d[(row + 8) * 8 + col + 1] = r[3];
}
torch::Tensor mm(torch::Tensor a, torch::Tensor b) {
  auto d = torch::zeros({64, 8}, a.options().dtype(torch::kFloat32));
  tile<<<1, 128, 0, at::cuda::getCurrentCUDAStream()>>>(reinterpret_cast<const __nv_bfloat16*>(a.data_ptr<at::BFloat16>()), reinterpret_cast<const __nv_bfloat16*>(b.data_ptr<at::BFloat16>()), d.data_ptr<float>());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return d;
}
"""
module = load_inline(
    name="cuda_wgmma",
    cpp_sources="torch::Tensor mm(torch::Tensor a, torch::Tensor b);",
    cuda_sources=SOURCE,
    functions=["mm"],
    extra_cuda_cflags=["-O3", "-gencode=arch=compute_90a,code=sm_90a"],
)


def results():
    torch.manual_seed(0)
    a, b = (
        torch.randn(64, 16, device="cuda").bfloat16(),
        torch.randn(8, 16, device="cuda").bfloat16(),
    )
    d = module.mm(a, b)
    torch.testing.assert_close(d, a.float() @ b.float().T, rtol=1e-3, atol=1e-3)
    return [d]
