# level2_51_Gemm_Subtract_GlobalAvgPool_LogSumExp_GELU_ResidualAdd: the candidate of attempt 2, as its model wrote it (claude-by-mailbox).
# 106 µs a call; eager PyTorch: 5.72 ms, 54.00× (53.58–54.32) (first look), on NVIDIA H200.

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

TUNE = {'SEGW': 512, 'NGRP': 1, 'OUTCS': 1}

SOURCE = r"""
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#define PTX(s, ...) asm volatile(s :: __VA_ARGS__ : "memory")
// 128 blocks; ring items of 32 KiB: 64 of W, then 16 rows of x. Q even for two groups: a slot's rows stay with one group.
constexpr int NB = 128, STEPS = 64, SLOT = 32768, Q = 8 - NGRP, R = 8192 / SEGW;
constexpr int TG = 512 / NGRP, V = 2048 / TG, WG = 16 / NGRP;
__device__ float4 colsum[2048];
__device__ float biassum;
__device__ int tally[2];

__device__ __forceinline__ void bulk(int to, const float* from, int bytes, int bar, unsigned long long policy) {
 PTX("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0],[%1],%2,[%3],%4;",
  "r"(to), "l"(from), "r"(bytes), "r"(bar), "l"(policy));
}
__device__ __forceinline__ void hold(int bar, int parity) {
 PTX("{.reg .pred p; L: mbarrier.try_wait.parity.shared.b64 p,[%0],%1; @!p bra L;}", "r"(bar), "r"(parity));
}
__device__ __forceinline__ void release(int bar) {
 PTX("mbarrier.arrive.shared.b64 _,[%0];", "r"(bar));
}
__device__ __forceinline__ float warpsum(float v) {
#pragma unroll
 for (int o = 16; o; o /= 2) v += __shfl_xor_sync(~0u, v, o);
 return v;
}

__global__ __launch_bounds__(544, 1) void fused(const float* x, const float* w, const float* b, const float* sub, float4* out) {
 extern __shared__ __align__(128) float4 ring[];
 __shared__ unsigned long long bars[2 * Q];
 __shared__ float part[2][16];
 int t = threadIdx.x, blk = blockIdx.x, lane = t % 32;
 int full = (int)__cvta_generic_to_shared(bars), empty = full + Q * 8;
 if (t < 2 * Q) PTX("mbarrier.init.shared.b64 [%0],%1;", "r"(full + t * 8), "r"(t < Q ? 1 : 16));
 PTX("fence.proxy.async;");
 __syncthreads();
 if (t >= 512) {
  if (t == 512) {
   unsigned long long policy;
   asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
   int base = (int)__cvta_generic_to_shared(ring);
   for (int n = 0; n < STEPS + 16; ++n) {
    int i = n % Q, bar = full + i * 8, to = base + i * SLOT;
    if (n >= Q) hold(empty + i * 8, (n / Q + 1) & 1);
    PTX("mbarrier.arrive.expect_tx.shared.b64 _,[%0],%1;", "r"(bar), "r"(SLOT));
    if (n < STEPS) {
     const float* from = w + (n * NB + blk / R * R) * 8192ll + blk % R * SEGW;
     for (int r = 0; r < R; ++r) bulk(to + r * SEGW * 4, from + r * 8192, SEGW * 4, bar, policy);
    } else {
     bulk(to, x + ((n - STEPS) * NB + blk) * 8192ll, SLOT, bar, policy);
    }
   }
  }
  return;
 }
 if (t < 64) {
  float v = warpsum(b[blk * 64 + t] - sub[blk * 64 + t]);
  if (lane == 0) atomicAdd(&biassum, v);
 }
 float4 a = make_float4(0.f, 0.f, 0.f, 0.f);
 for (int n = 0; n < STEPS; ++n) {
  int i = n % Q;
  hold(full + i * 8, n / Q & 1);
#pragma unroll
  for (int e = 0; e < 4; ++e) {
   float4 v = ring[i * 2048 + e * 512 + t];
   a.x += v.x; a.y += v.y; a.z += v.z; a.w += v.w;
  }
  __syncwarp();
  if (lane == 0) release(empty + i * 8);
 }
 atomicAdd(colsum + blk % R * (SEGW / 4) + t % (SEGW / 4), a);
 PTX("bar.sync 1,512;");
 if (t == 0) {
  __threadfence();
  atomicAdd(tally, 1);
  while (*(volatile int*)tally < NB) {}
  __threadfence();
 }
 PTX("bar.sync 1,512;");
 int grp = t / TG, u = t % TG, order = 0;
 float4 c[V];
#pragma unroll
 for (int e = 0; e < V; ++e) c[e] = __ldcg(colsum + u + TG * e);
 float offset = __ldcg(&biassum);
 PTX("bar.sync 1,512;");
 if (t == 0) {
  __threadfence();
  order = atomicAdd(tally + 1, 1);
 }
 for (int j = grp; j < 16; j += NGRP) {
  int n = STEPS + j, i = n % Q;
  hold(full + i * 8, n / Q & 1);
  float4 v[V];
  float s = 0.f;
#pragma unroll
  for (int e = 0; e < V; ++e) {
   v[e] = ring[i * 2048 + u + TG * e];
   s += v[e].x * c[e].x + v[e].y * c[e].y + v[e].z * c[e].z + v[e].w * c[e].w;
  }
  __syncwarp();
  if (lane < NGRP) release(empty + i * 8);
  s = warpsum(s);
  float* p = part[j / NGRP & 1] + grp * WG;
  if (lane == 0) p[u / 32] = s;
  PTX("bar.sync %0,%1;", "r"(2 + grp), "r"(TG));
  s = offset;
#pragma unroll
  for (int k = 0; k < WG; ++k) s += p[k];
  s *= 1.f / 8192.f;
  s *= .5f * erfcf(-.70710678f * s);
  float4* o = out + (j * NB + blk) * 2048ll + u;
#pragma unroll
  for (int e = 0; e < V; ++e) {
   float4 y = make_float4(v[e].x + s, v[e].y + s, v[e].z + s, v[e].w + s);
   if (OUTCS) __stcs(o + TG * e, y);
   else o[TG * e] = y;
  }
 }
 if (t < 32 && __shfl_sync(~0u, order, 0) == NB - 1) {
  for (int k = lane; k < 2048; k += 32) colsum[k] = make_float4(0.f, 0.f, 0.f, 0.f);
  if (lane == 0) {
   biassum = 0.f;
   tally[0] = 0;
   tally[1] = 0;
  }
 }
}

torch::Tensor mean_gelu_add(torch::Tensor x, torch::Tensor w, torch::Tensor b, torch::Tensor sub) {
 x = x.contiguous(); w = w.contiguous(); b = b.contiguous(); sub = sub.contiguous();
 TORCH_CHECK(x.numel() == 2048 * 8192 && w.numel() == 8192 * 8192, "shape");
 auto out = torch::empty({2048, 8192}, x.options());
 cudaFuncSetAttribute(fused, cudaFuncAttributeMaxDynamicSharedMemorySize, Q * SLOT);
 fused<<<NB, 544, Q * SLOT, at::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), w.data_ptr<float>(),
  b.data_ptr<float>(), sub.data_ptr<float>(), (float4*)out.data_ptr<float>());
 C10_CUDA_KERNEL_LAUNCH_CHECK();
 return out;
}
"""

ext = load_inline(
    name="colsum_gelu_add",
    cpp_sources="torch::Tensor mean_gelu_add(torch::Tensor x, torch::Tensor w, torch::Tensor b, torch::Tensor sub);",
    cuda_sources=SOURCE,
    functions=["mean_gelu_add"],
    extra_cuda_cflags=["-O3", "-gencode=arch=compute_90a,code=sm_90a", f"-DSEGW={TUNE['SEGW']}",
                       f"-DNGRP={TUNE['NGRP']}", f"-DOUTCS={TUNE['OUTCS']}"],
)

class ModelNew(nn.Module):
    """
    Model that performs a series of operations: Gemm, Subtract, GlobalAvgPool, LogSumExp, GELU, and ResidualAdd.
    """
    def __init__(self, in_features, out_features, bias=True):
        super(ModelNew, self).__init__()
        self.gemm = nn.Linear(in_features, out_features, bias=bias)
        self.subtract = nn.Parameter(torch.randn(out_features))

    def forward(self, x):
        return ext.mean_gelu_add(x, self.gemm.weight, self.gemm.bias, self.subtract)

batch_size = 2048
in_features = 8192
out_features = 8192
