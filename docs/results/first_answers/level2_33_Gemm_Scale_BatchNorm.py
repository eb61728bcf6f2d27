# level2_33_Gemm_Scale_BatchNorm: the candidate of attempt 1, as its model wrote it (claude-by-mailbox).
# 536 µs a call; eager PyTorch: 2.84 ms, 5.30× (5.27–5.36) (first look), on NVIDIA H200.

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_src = r"""
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <cuda.h>
#include <cstdint>

constexpr int BATCH = 1024, KDIM = 8192, FEAT = 8192;
constexpr int SLOT = 49152, NQ = 4, XOFF = NQ * SLOT, BOFF = XOFF + KDIM * 4, SMEM = BOFF + NQ * 16;

__device__ float2 g_part[FEAT / 128 * 4 * 128];
__device__ int g_cnt[FEAT / 128];

CUtensorMap tiles(void* x, cuuint64_t rows, cuuint64_t cols, cuuint32_t h) {
 static void* f = [] {
  void* p = nullptr;
  cudaDriverEntryPointQueryResult q;
  cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &p, 12000, cudaEnableDefault, &q);
  return p;
 }();
 CUtensorMap m;
 cuuint64_t size[] = {cols, rows}, pitch[] = {cols * 4};
 cuuint32_t box[] = {32, h}, one[] = {1, 1};
 ((decltype(&cuTensorMapEncodeTiled))f)(&m, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, x, size, pitch,
  box, one, {}, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, {});
 return m;
}
#define PTX(s, ...) asm volatile(s :: __VA_ARGS__ : "memory")
__device__ __forceinline__ void tma_fetch(int to, const void* m, int col, int row, int b) {
 PTX("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0],[%1,{%2,%3}],[%4];",
  "r"(to), "l"(m), "r"(col), "r"(row), "r"(b));
}
__device__ __forceinline__ void bar_wait(int b, int p) {
 PTX("{.reg .pred p; L: mbarrier.try_wait.parity.shared.b64 p,[%0],%1; @!p bra L;}", "r"(b), "r"(p));
}
__device__ __forceinline__ void split(float2 v, unsigned& h, unsigned& l) {
#define CVT(o) asm("cvt.rn.bf16x2.f32 %0,%1,%2;" : "=r"(o) : "f"(v.y), "f"(v.x))
 CVT(h);
 v.x -= __uint_as_float(h << 16); v.y -= __uint_as_float(h & ~65535);
 CVT(l);
}
#define R(t) "%" #t "0,%" #t "1,%" #t "2,%" #t "3,%" #t "4,%" #t "5,%" #t "6,%" #t "7,%" #t "8,%" #t "9,"
#define D(i) "+f"(d[i]),"+f"(d[i+1]),"+f"(d[i+2]),"+f"(d[i+3])
#define E(i) D(i), D(i+4), D(i+8), D(i+12)
__device__ __forceinline__ void wg(float* d, unsigned* a, size_t b) {
 asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
  R() R(1) R(2) R(3) R(4) R(5) R(6) R(7) R(8) R(9) R(10) R(11)
  "%120,%121,%122,%123,%124,%125,%126,%127},{%128,%129,%130,%131},%132,1,1,1,0;"
  : E(0), E(16), E(32), E(48), E(64), E(80), E(96), E(112)
  : "r"(*a), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

__global__ __launch_bounds__(512) void center_pack(const float2* __restrict__ x, uint4* __restrict__ o,
                                                   float* __restrict__ xbar) {
 __shared__ float red[16][32], mu[32];
 const int t = threadIdx.x, m = t & 3, row = t >> 2, b = blockIdx.x;
 float2 v[8][4], s[4] = {};
#pragma unroll
 for (int i = 0; i < 8; ++i)
#pragma unroll
  for (int c = 0; c < 4; ++c) v[i][c] = x[(row + i * 128) * (KDIM / 2) + b * 16 + m + c * 4];
#pragma unroll
 for (int c = 0; c < 4; ++c) {
#pragma unroll
  for (int i = 0; i < 8; ++i) { s[c].x += v[i][c].x; s[c].y += v[i][c].y; }
#pragma unroll
  for (int e = 4; e < 32; e <<= 1) {
   s[c].x += __shfl_xor_sync(~0u, s[c].x, e);
   s[c].y += __shfl_xor_sync(~0u, s[c].y, e);
  }
  if ((t & 31) < 4) {
   red[t >> 5][c * 8 + m * 2] = s[c].x;
   red[t >> 5][c * 8 + m * 2 + 1] = s[c].y;
  }
 }
 __syncthreads();
 if (t < 32) {
  float a = 0.f;
#pragma unroll
  for (int i = 0; i < 16; ++i) a += red[i][t];
  a *= 1.f / BATCH;
  mu[t] = a;
  xbar[b * 32 + t] = a;
 }
 __syncthreads();
#pragma unroll
 for (int i = 0; i < 8; ++i) {
  unsigned h[4], l[4];
#pragma unroll
  for (int c = 0; c < 4; ++c)
   split(make_float2(v[i][c].x - mu[c * 8 + m * 2], v[i][c].y - mu[c * 8 + m * 2 + 1]), h[c], l[c]);
  uint4* q = o + (row + i * 128) * (KDIM / 4) + b * 8 + m;
  q[0] = make_uint4(h[0], h[1], h[2], h[3]);
  q[4] = make_uint4(l[0], l[1], l[2], l[3]);
 }
}

#define MAP const __grid_constant__ CUtensorMap
__global__ __launch_bounds__(384) void gemm_bn(MAP A, MAP P, const float4* xbar, const float* bias,
  const float* scale, const float* gam, const float* bet, float* rmean, float* rvar, long long* tracked,
  float* C, float eps, float mom) {
 extern __shared__ __align__(1024) char s[];
 int S = __cvta_generic_to_shared(s), full = S + BOFF, empty = full + NQ * 8;
 int t = threadIdx.x, g = t % 32 / 4, r = t / 32 * 16 + g, y = blockIdx.y * 128, x = blockIdx.x * 256;
 constexpr int n = KDIM / 32;
 float4* sx = (float4*)(s + XOFF);
 for (int i = t; i < KDIM / 4; i += 384) sx[i] = xbar[i];
 if (t < NQ * 2) PTX("mbarrier.init.shared.b64 [%0],%1;", "r"(full + t * 8), "r"(t < NQ ? 1 : 8));
 PTX("fence.proxy.async;");
 __syncthreads();
 if (t > 255) {
  PTX("setmaxnreg.dec.sync.aligned.u32 24;");
  for (int k = 0; t == 256 && k < n; ++k) {
   int i = k % NQ, a = S + i * SLOT, b = full + i * 8;
   if (k >= NQ) bar_wait(empty + i * 8, k / NQ + 1 & 1);
   PTX("mbarrier.arrive.expect_tx.shared.b64 _,[%0],%1;", "r"(b), "r"(SLOT));
   tma_fetch(a, &A, k * 32, y, b);
   tma_fetch(a + 16384, &P, k * 32, x, b);
  }
  return;
 }
 PTX("setmaxnreg.inc.sync.aligned.u32 240;");
 float d[128] = {}, w0 = 0.f, w1 = 0.f;
 unsigned h[2][4], l[2][4];
#pragma unroll
 for (float& v : d) asm volatile("" : "+f"(v));
 for (int k = 0; k < n; ++k) {
  int i = k % NQ;
  bar_wait(full + i * 8, k / NQ & 1);
#pragma unroll
  for (int j = 0; j < 2; ++j) {
   auto p = (float2*)(s + i * SLOT + r * 128 + (t % 4 * 2 + j ^ g) * 16);
   float2 v[4] = {p[0], p[128], p[1], p[129]};
   float4 m = sx[k * 8 + t % 4 * 2 + j];
   w0 = fmaf(v[0].x, m.x, fmaf(v[0].y, m.y, fmaf(v[2].x, m.z, fmaf(v[2].y, m.w, w0))));
   w1 = fmaf(v[1].x, m.x, fmaf(v[1].y, m.y, fmaf(v[3].x, m.z, fmaf(v[3].y, m.w, w1))));
#pragma unroll
   for (int e = 0; e < 4; ++e) split(v[e], h[j][e], l[j][e]);
   size_t b = (S + i * SLOT + 16384 >> 4 | 1ull << 38 | 1ull << 62) + j * 2;
   PTX("wgmma.fence.sync.aligned;");
   wg(d, l[j], b); wg(d, h[j], b + 4); wg(d, h[j], b);
   PTX("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 1;");
   if (!j && k && t % 32 == 0) PTX("mbarrier.arrive.shared.b64 _,[%0];", "r"(empty + (k - 1) % NQ * 8));
  }
 }
 PTX("wgmma.wait_group.sync.aligned 0;");

 float q[6] = {0.f, 0.f, 0.f, 0.f, w0, w1};
#pragma unroll
 for (int i = 0; i < 128; ++i) {
  q[i / 2 % 2 * 2] += d[i];
  q[i / 2 % 2 * 2 + 1] = fmaf(d[i], d[i], q[i / 2 % 2 * 2 + 1]);
 }
#pragma unroll
 for (int i = 0; i < 6; ++i) {
  q[i] += __shfl_xor_sync(~0u, q[i], 1);
  q[i] += __shfl_xor_sync(~0u, q[i], 2);
 }
 float2* part = g_part + blockIdx.y * 512;
 if (t % 4 == 0) {
  part[blockIdx.x * 128 + r] = make_float2(q[0], q[1]);
  part[blockIdx.x * 128 + r + 8] = make_float2(q[2], q[3]);
 }
 PTX("bar.sync %0, 256;", "n"(1));
 if (t == 0) {
  int* c = g_cnt + blockIdx.y;
  __threadfence();
  atomicAdd(c, 1);
  int a;
  do {
   asm volatile("ld.acquire.gpu.global.s32 %0,[%1];" : "=r"(a) : "l"(c) : "memory");
  } while (a < 4);
  __threadfence();
  if (atomicAdd(c, 1) == 7) *c = 0;
 }
 PTX("bar.sync %0, 256;", "n"(1));
 float al[2], sh[2];
#pragma unroll
 for (int i = 0; i < 2; ++i) {
  const volatile float* p = (const volatile float*)(part + r + i * 8);
  const int f = y + r + i * 8;
  float a = 0.f, b = 0.f;
#pragma unroll
  for (int c = 0; c < 4; ++c) { a += p[c * 256]; b += p[c * 256 + 1]; }
  const float mean = a * (1.f / BATCH), sc = scale[f];
  const float var = fmaxf(b * (1.f / BATCH) - mean * mean, 0.f) * sc * sc;
  al[i] = gam[f] * sc / sqrtf(var + eps);
  sh[i] = bet[f] - mean * al[i];
  if (x == 0 && t % 4 == 0) {
   rmean[f] = (1.f - mom) * rmean[f] + mom * sc * (mean + q[4 + i] + bias[f]);
   rvar[f] = (1.f - mom) * rvar[f] + mom * var * ((float)BATCH / (BATCH - 1));
  }
 }
 if (x == 0 && y == 0 && t == 0) *tracked += 1;
 C += (x + t % 4 * 2) * FEAT + y + r;
#pragma unroll
 for (int i = 0; i < 128; ++i)
  C[(i / 4 * 8 + i % 2) * FEAT + i / 2 % 2 * 8] = fmaf(d[i], al[i / 2 % 2], sh[i / 2 % 2]);
}

torch::Tensor gemm_scale_bn(torch::Tensor x, torch::Tensor w, torch::Tensor bias, torch::Tensor scale,
  torch::Tensor gam, torch::Tensor bet, torch::Tensor rmean, torch::Tensor rvar, torch::Tensor tracked,
  double eps, double mom) {
 TORCH_CHECK(x.size(0) == BATCH && x.size(1) == KDIM && w.size(0) == FEAT && w.size(1) == KDIM, "shape");
 x = x.contiguous(); w = w.contiguous(); bias = bias.contiguous();
 scale = scale.contiguous(); gam = gam.contiguous(); bet = bet.contiguous();
 auto packed = torch::empty({BATCH, KDIM}, x.options());
 auto xbar = torch::empty({KDIM}, x.options());
 auto out = torch::empty({BATCH, FEAT}, x.options());
 auto stream = at::cuda::getCurrentCUDAStream();
 static const cudaError_t once = cudaFuncSetAttribute(gemm_bn, cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM);
 C10_CUDA_CHECK(once);
 center_pack<<<KDIM / 32, 512, 0, stream>>>((const float2*)x.data_ptr<float>(), (uint4*)packed.data_ptr<float>(),
  xbar.data_ptr<float>());
 C10_CUDA_KERNEL_LAUNCH_CHECK();
 gemm_bn<<<dim3(BATCH / 256, FEAT / 128), 384, SMEM, stream>>>(
  tiles(w.data_ptr<float>(), FEAT, KDIM, 128), tiles(packed.data_ptr<float>(), BATCH, KDIM, 256),
  (const float4*)xbar.data_ptr<float>(), bias.data_ptr<float>(), scale.data_ptr<float>(), gam.data_ptr<float>(),
  bet.data_ptr<float>(), rmean.data_ptr<float>(), rvar.data_ptr<float>(), (long long*)tracked.data_ptr<int64_t>(),
  out.data_ptr<float>(), (float)eps, (float)mom);
 C10_CUDA_KERNEL_LAUNCH_CHECK();
 return out;
}
"""

cpp_src = ("torch::Tensor gemm_scale_bn(torch::Tensor x, torch::Tensor w, torch::Tensor bias, torch::Tensor scale, "
           "torch::Tensor gam, torch::Tensor bet, torch::Tensor rmean, torch::Tensor rvar, torch::Tensor tracked, "
           "double eps, double mom);")

ext = load_inline(
    name="gemm_scale_bn_fused",
    cpp_sources=cpp_src,
    cuda_sources=cuda_src,
    functions=["gemm_scale_bn"],
    extra_cuda_cflags=["-O3", "-gencode=arch=compute_90a,code=sm_90a"],
)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, scale_shape, eps=1e-5, momentum=0.1):
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features)
        self.scale = nn.Parameter(torch.randn(scale_shape))
        self.bn = nn.BatchNorm1d(out_features, eps=eps, momentum=momentum)

    def forward(self, x):
        bn = self.bn
        return ext.gemm_scale_bn(x, self.gemm.weight, self.gemm.bias, self.scale, bn.weight, bn.bias,
                                 bn.running_mean, bn.running_var, bn.num_batches_tracked, bn.eps, bn.momentum)
