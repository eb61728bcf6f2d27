# level3_33_VanillaRNN: the candidate of attempt 7, as its model wrote it (claude-by-mailbox).
# 1.27 ms a call; eager PyTorch: 6.94 ms, 5.46× (5.37–5.87) (first look), on NVIDIA H100 80GB HBM3.

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

TUNE = {'CL': 2}

batch_size = 256

_CUDA = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <cuda.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
typedef unsigned long long u64;

static CUtensorMap tensor_map(const void* x, bool half, cuuint64_t rows, cuuint64_t cols,
                              cuuint32_t bc, cuuint32_t br) {
  static void* f = nullptr;
  if (!f) {
    cudaDriverEntryPointQueryResult q;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000, cudaEnableDefault, &q);
  }
  CUtensorMap m;
  cuuint64_t size[] = {cols, rows}, pitch[] = {cols * (half ? 2ull : 4ull)};
  cuuint32_t box[] = {bc, br}, one[] = {1, 1};
  CUresult r = ((decltype(&cuTensorMapEncodeTiled))f)(&m,
    half ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, (void*)x, size,
    pitch, box, one, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
    CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  TORCH_CHECK(r == CUDA_SUCCESS, "tensor map");
  return m;
}
__device__ __forceinline__ unsigned saddr(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void fetch(unsigned to, const CUtensorMap* m, int col, int row, unsigned bar) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
    "[%0],[%1,{%2,%3}],[%4];"
    :: "r"(to), "l"(m), "r"(col), "r"(row), "r"(bar) : "memory");
}
__device__ __forceinline__ void fetch_all(unsigned to, const CUtensorMap* m, int col, int row, unsigned bar, unsigned short mask) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
    "[%0],[%1,{%2,%3}],[%4],%5;"
    :: "r"(to), "l"(m), "r"(col), "r"(row), "r"(bar), "h"(mask) : "memory");
}
__device__ __forceinline__ void bar_init(unsigned b, int n) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0],%1;" :: "r"(b), "r"(n) : "memory");
}
__device__ __forceinline__ void bar_expect(unsigned b, int n) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _,[%0],%1;" :: "r"(b), "r"(n) : "memory");
}
__device__ __forceinline__ void bar_arrive_at(unsigned b, unsigned cta) {
  unsigned r;
  asm volatile("mapa.shared::cluster.u32 %0,%1,%2;" : "=r"(r) : "r"(b), "r"(cta));
  asm volatile("mbarrier.arrive.shared::cluster.b64 _,[%0];" :: "r"(r) : "memory");
}
__device__ __forceinline__ void bar_wait(unsigned b, unsigned ph) {
  unsigned ok;
  do {
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p,[%1],%2; selp.u32 %0,1,0,p;}"
      : "=r"(ok) : "r"(b), "r"(ph) : "memory");
  } while (!ok);
}
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

__device__ __forceinline__ unsigned e4(float a, float b, float c, float d) {  // a in the lowest byte
  unsigned r;
  asm("{.reg .b16 l,h; cvt.rn.satfinite.e4m3x2.f32 l,%2,%1; cvt.rn.satfinite.e4m3x2.f32 h,%4,%3; mov.b32 %0,{l,h};}"
    : "=r"(r) : "f"(a), "f"(b), "f"(c), "f"(d));
  return r;
}
__device__ __forceinline__ unsigned h2(float x, float y) {
  __half2 v = __floats2half2_rn(x, y);
  return *(unsigned*)&v;
}
// four values: half, and e4m3 of fine * value and coarse * (value - half)
__device__ __forceinline__ void split4(float4 u, float fine, float coarse, unsigned& h0, unsigned& h1, unsigned& w8, unsigned& l8) {
  h0 = h2(u.x, u.y); h1 = h2(u.z, u.w);
  float2 a = __half22float2(*(__half2*)&h0), b = __half22float2(*(__half2*)&h1);
  w8 = e4(u.x * fine, u.y * fine, u.z * fine, u.w * fine);
  l8 = e4((u.x - a.x) * coarse, (u.y - a.y) * coarse, (u.z - b.x) * coarse, (u.w - b.y) * coarse);
}
// 4 x 4 transpose in a quad: lane t held word t of four vectors, gets vector t
__device__ __forceinline__ uint4 quad(unsigned a, unsigned b, unsigned c, unsigned d, int t) {
  bool p = t & 1, q = t & 2;
  unsigned u = __shfl_xor_sync(~0u, p ? a : b, 1), v = __shfl_xor_sync(~0u, p ? c : d, 1);
  if (p) { a = u; c = v; } else { b = u; d = v; }
  u = __shfl_xor_sync(~0u, q ? a : c, 2); v = __shfl_xor_sync(~0u, q ? b : d, 2);
  if (q) { a = u; b = v; } else { c = u; d = v; }
  return make_uint4(a, b, c, d);
}
// 32 k are 128 bytes: 32 halves, 32 e4m3 of the value / 2^7, 32 e4m3 of the rest * 2^4. k = 8t + 4j + i: half
// 16j + 8(i / 2) + 2t + i % 2, byte 16j + 4t + i (as registers hold the weights). A quad (lanes t = 0..3) packs 32 k, all its lanes at once.
__device__ __forceinline__ void pack8(unsigned* group, int t, float4 a, float4 b) {
  unsigned h0, h1, h2_, h3, v0, v1, r0, r1;
  split4(a, 1.f / 128, 16.f, h0, h1, v0, r0);
  split4(b, 1.f / 128, 16.f, h2_, h3, v1, r1);
  ((uint4*)group)[t] = quad(h0, h1, h2_, h3, t);
  ((uint4*)group)[4 + t] = quad(v0, v1, r0, r1, t);
}
__device__ __forceinline__ float4 times(float4 a, float s) { return make_float4(a.x * s, a.y * s, a.z * s, a.w * s); }
// A row of x|h, scaled by a power of two to below 2^15; the row stays in registers between the maximum and the packing.
constexpr int PU = 8, KMAX = 512 * 8 * PU;
__global__ __launch_bounds__(512, 1)
void prep(const float* __restrict__ x, const float* __restrict__ hid, unsigned* __restrict__ o, float* inv, int I, int H) {
  __shared__ float red[16];
  int r = blockIdx.x, K = I + H;
  const float4 *px = (const float4*)(x + (size_t)r * I), *ph = (const float4*)(hid + (size_t)r * H);
  float4 v[PU][2];
#pragma unroll
  for (int c = 0; c < PU; ++c) {
    int i = c * 512 + threadIdx.x;
    v[c][0] = v[c][1] = make_float4(0.f, 0.f, 0.f, 0.f);
    if (i < K / 8) {
      const float4* p = i < I / 8 ? px + 2 * i : ph + 2 * (i - I / 8);
      v[c][0] = __ldg(p); v[c][1] = __ldg(p + 1);
    }
  }
  float m = 0;
#pragma unroll
  for (int c = 0; c < PU; ++c)
#pragma unroll
    for (int j = 0; j < 2; ++j)
      m = fmaxf(fmaxf(m, fmaxf(fabsf(v[c][j].x), fabsf(v[c][j].y))), fmaxf(fabsf(v[c][j].z), fabsf(v[c][j].w)));
  for (int k = 16; k; k /= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, k));
  if (threadIdx.x % 32 == 0) red[threadIdx.x / 32] = m;
  __syncthreads();
  m = 0;
  for (int k = 0; k < 16; ++k) m = fmaxf(m, red[k]);
  int ex = (int)(__float_as_uint(m) >> 23) - 127;
  ex = max(-100, min(ex, 120));
  float sc = __uint_as_float((unsigned)(127 + 14 - ex) << 23);
  if (threadIdx.x == 0) {
    inv[r] = __uint_as_float((unsigned)(127 + ex - 14) << 23) * (1.f / 65536);
    inv[gridDim.x + r] = 1.f / 16384 / 65536;  // hidden is packed times 2^14
  }
#pragma unroll
  for (int c = 0; c < PU; ++c) {
    int i = c * 512 + threadIdx.x;
    if (c * 512 + (int)threadIdx.x / 32 * 32 < K / 8)  // whole warps: K is a multiple of 256
      pack8(o + ((size_t)r * (K / 32) + i / 4) * 32, i % 4, times(v[c][0], sc), times(v[c][1], sc));
  }
}

__device__ __forceinline__ void mma16(float (&d)[64], const unsigned* a, u64 desc, int add) {
  asm volatile("{.reg .pred p; setp.ne.b32 p,%69,0;\n"
    "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {@R@},{%64,%65,%66,%67},%68,p,1,1,0;}\n"
    : @O@ : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(desc), "r"(add));
}

__device__ __forceinline__ void mma8(float (&d)[64], const unsigned* a, u64 desc, int add) {
  asm volatile("{.reg .pred p; setp.ne.b32 p,%69,0;\n"
    "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {@R@},{%64,%65,%66,%67},%68,p,1,1;}\n"
    : @O@ : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(desc), "r"(add));
}

constexpr int NB = 256, ST = 4, BM = 128, SB = BM * 128 + NB * 128;  // k = 32 a stage: 16 KiB of weights, 32 KiB of inputs
__device__ __forceinline__ u64 desc_of(unsigned a) {  // 128-byte swizzle, k contiguous, 8 rows every 1024 bytes
  return (1ull << 62) | (64ull << 32) | (1ull << 16) | (u64)((a & 0x3ffff) >> 4);
}
// 128 weight rows x 256 batch rows; two groups of 64 x 256, a third feeds them. The tensor cores sum 32 k, registers the rest.
// mode 1: out = tanh(sum + bias); mode 0: partial sums
__global__ __launch_bounds__(384, 1)
void gemm(const __grid_constant__ CUtensorMap mw, const __grid_constant__ CUtensorMap mx, const float* __restrict__ inv,
          const float* __restrict__ bias, float* out, unsigned* packed, int N, int tiles, int steps, int mode) {
  extern __shared__ unsigned char raw[];
  __shared__ __align__(8) u64 bars[2 * ST];
  unsigned base = (saddr(raw) + 1023u) & ~1023u;
  const unsigned char* gen = raw + (base - saddr(raw));
  unsigned full = saddr(bars), empty = full + 8 * ST;
  int n0 = blockIdx.x % tiles * BM, z = blockIdx.x / tiles, k0 = z * steps;
  unsigned rank;
  asm volatile("mov.u32 %0,%%cluster_ctarank;" : "=r"(rank));
  if (threadIdx.x == 0) {
    for (int s = 0; s < ST; ++s) { bar_init(full + 8 * s, 1); bar_init(empty + 8 * s, 8 * CL); }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  cluster_sync();
  if (threadIdx.x >= 256) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x == 256) {
      for (int i = 0; i < steps; ++i) {
        int s = i % ST;
        if (i >= ST) bar_wait(empty + 8 * s, (i / ST - 1) & 1);
        bar_expect(full + 8 * s, SB);
        fetch(base + s * SB, &mw, (k0 + i) * 32, n0, full + 8 * s);
        if (CL == 1) fetch(base + s * SB + BM * 128, &mx, (k0 + i) * 64, 0, full + 8 * s);
        else fetch_all(base + s * SB + BM * 128 + rank * (NB / CL * 128), &mx, (k0 + i) * 64, rank * (NB / CL),
                       full + 8 * s, (unsigned short)((1 << CL) - 1));
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, row0 = threadIdx.x / 32 * 16;
    float acc[2][64], d[64];
#pragma unroll
    for (int i = 0; i < 64; ++i) { acc[0][i] = 0.f; acc[1][i] = 0.f; d[i] = 0.f; }
    for (int i = 0; i < steps; ++i) {
      int s = i % ST;
      bar_wait(full + 8 * s, (i / ST) & 1);
      const float* w = (const float*)(gen + s * SB);
      unsigned ah[2][4], a8[4], l8[4];  // weights * 2^16 as halves, their value / 2^4 and rest * 2^7 as e4m3
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float* p = w + (row0 + g) * 32 + ((2 * t + j) ^ g) * 4;
        float4 u = *(const float4*)p, v = *(const float4*)(p + 256);
        u.x *= 65536.f; u.y *= 65536.f; u.z *= 65536.f; u.w *= 65536.f;
        v.x *= 65536.f; v.y *= 65536.f; v.z *= 65536.f; v.w *= 65536.f;
        split4(u, 0.0625f, 128.f, ah[j][0], ah[j][2], a8[2 * j], l8[2 * j]);
        split4(v, 0.0625f, 128.f, ah[j][1], ah[j][3], a8[2 * j + 1], l8[2 * j + 1]);
      }
      unsigned xb = base + s * SB + BM * 128;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        u64 b = desc_of(xb + h * 16384);
#pragma unroll
        for (int e = 0; e < 64; ++e) asm volatile("" : "+f"(d[e]) :: "memory");
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        mma8(d, l8, b + 4, 0);   // the small terms first: e4m3 sums are short
        mma8(d, a8, b + 6, 1);
        mma16(d, ah[0], b, 1);
        mma16(d, ah[1], b + 2, 1);
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
        for (int e = 0; e < 64; ++e) asm volatile("" : "+f"(d[e]) :: "memory");
#pragma unroll
        for (int e = 0; e < 64; ++e) acc[h][e] += d[e];
      }
#pragma unroll
      for (int e = 0; e < 4; ++e)
        asm volatile("" : "+r"(ah[0][e]), "+r"(ah[1][e]), "+r"(a8[e]), "+r"(l8[e]) :: "memory");  // kept until the products are done
      __syncwarp();
      if (lane < CL) bar_arrive_at(empty + 8 * s, lane);
    }
    float b0 = bias[n0 + row0 + g], b1 = bias[n0 + row0 + g + 8];
    float* o = out + (size_t)z * NB * N + n0 + row0 + g;
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int j = 0; j < 16; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          int b = h * 128 + j * 8 + t * 2 + e;
          float v0 = acc[h][j * 4 + e], v1 = acc[h][j * 4 + 2 + e];
          float k = __ldg(inv + b); v0 *= k; v1 *= k;
          if (mode) { v0 = tanhf(v0 + b0); v1 = tanhf(v1 + b1); }
          o[(size_t)b * N] = v0;
          o[(size_t)b * N + 8] = v1;
        }
    if (mode) {  // pack this block's 256 x 128 of hidden: 16 units of 8 features a batch row, full cache lines
      asm volatile("bar.sync 1,256;" ::: "memory");
#pragma unroll 4
      for (int it = 0; it < NB * 16 / 256; ++it) {
        int u = it * 256 + threadIdx.x, b = u / 16, c = u % 16;
        const float4* p = (const float4*)(out + (size_t)b * N + n0 + c * 8);
        float4 a0 = p[0], a1 = p[1];
        pack8(packed + ((size_t)b * (N / 32) + n0 / 32 + c / 4) * 32, c % 4, times(a0, 16384.f), times(a1, 16384.f));
      }
    }
  }
  __syncwarp();
  cluster_sync();  // nobody leaves while others still write or arrive here
}

__global__ __launch_bounds__(256)
void finish(const float4* __restrict__ P, const float4* __restrict__ bias, float4* __restrict__ out, int S, int BN4, int N4) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i >= BN4) return;
  float4 a = bias[i % N4];
  for (int s = 0; s < S; ++s) {
    float4 v = P[(size_t)s * BN4 + i];
    a.x += v.x; a.y += v.y; a.z += v.z; a.w += v.w;
  }
  out[i] = a;
}
static void product(torch::Tensor xp, torch::Tensor inv, torch::Tensor W, torch::Tensor bias, float* out, unsigned* packed, int S, int mode, cudaStream_t st) {
  int K = W.size(1), N = W.size(0);
  int tiles = N / BM;
  TORCH_CHECK(N % BM == 0 && tiles % CL == 0 && K % (32 * S) == 0);
  int smem = ST * SB + 1024;
  cudaFuncSetAttribute(gemm, cudaFuncAttributeMaxDynamicSharedMemorySize, smem);
  CUtensorMap mw = tensor_map(W.data_ptr(), false, N, K, 32, BM), mx = tensor_map(xp.data_ptr(), true, NB, 2 * (cuuint64_t)K, 64, NB / CL);
  cudaLaunchConfig_t cfg = {};
  cfg.gridDim = dim3(tiles * S); cfg.blockDim = dim3(384); cfg.dynamicSmemBytes = smem; cfg.stream = st;
  cudaLaunchAttribute la[1];
  la[0].id = cudaLaunchAttributeClusterDimension;
  la[0].val.clusterDim.x = CL; la[0].val.clusterDim.y = 1; la[0].val.clusterDim.z = 1;
  cfg.attrs = la; cfg.numAttrs = 1;
  C10_CUDA_CHECK(cudaLaunchKernelEx(&cfg, gemm, mw, mx, (const float*)inv.data_ptr<float>(), (const float*)bias.data_ptr<float>(),
    out, packed, N, tiles, K / 32 / S, mode));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}
std::vector<torch::Tensor> rnn(torch::Tensor x, torch::Tensor h, torch::Tensor W1, torch::Tensor b1,
                               torch::Tensor W2, torch::Tensor b2) {
  cudaStream_t st = at::cuda::getCurrentCUDAStream();
  x = x.contiguous(); h = h.contiguous(); W1 = W1.contiguous(); b1 = b1.contiguous();
  W2 = W2.contiguous(); b2 = b2.contiguous();
  int B = x.size(0), I = x.size(1), H = h.size(1), N2 = W2.size(0);
  TORCH_CHECK(B == NB && I % 256 == 0 && H % 256 == 0 && I + H <= KMAX && W1.size(1) == I + H && W1.size(0) == H && W2.size(1) == H);
  auto u8 = x.options().dtype(torch::kUInt8);
  auto xp = torch::empty({B, 4 * (int64_t)(I + H)}, u8), hp = torch::empty({B, 4 * (int64_t)H}, u8), inv = torch::empty({2, B}, x.options());
  auto hidden = torch::empty({B, H}, x.options()), out = torch::empty({B, N2}, x.options());
  prep<<<B, 512, 0, st>>>(x.data_ptr<float>(), h.data_ptr<float>(), (unsigned*)xp.data_ptr(), inv.data_ptr<float>(), I, H);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  product(xp, inv[0], W1, b1, hidden.data_ptr<float>(), (unsigned*)hp.data_ptr(), 1, 1, st);
  const int S = 2;
  auto P = torch::empty({S, B, N2}, x.options());
  product(hp, inv[1], W2, b2, P.data_ptr<float>(), nullptr, S, 0, st);
  finish<<<(B * (N2 / 4) + 255) / 256, 256, 0, st>>>((const float4*)P.data_ptr(), (const float4*)b2.data_ptr(), (float4*)out.data_ptr(),
    S, B * (N2 / 4), N2 / 4);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {out, hidden};
}
"""
_CUDA = _CUDA.replace("@R@", ",".join("%%%d" % i for i in range(64)))
_CUDA = _CUDA.replace("@O@", ",".join('"+f"(d[%d])' % i for i in range(64)))

_ext = load_inline(
    name="rnn_half_fp8_tail_%d" % TUNE["CL"],
    cpp_sources="std::vector<torch::Tensor> rnn(torch::Tensor x, torch::Tensor h, torch::Tensor W1, torch::Tensor b1, torch::Tensor W2, torch::Tensor b2);",
    cuda_sources=_CUDA,
    functions=["rnn"],
    extra_cuda_cflags=["-O3", "-gencode=arch=compute_90a,code=sm_90a", f"-DCL={TUNE['CL']}"],
)


class ModelNew(nn.Module):
    def __init__(self, input_size: int, hidden_size: int, output_size: int):
        super(ModelNew, self).__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.output_size = output_size
        self.hidden = torch.randn((batch_size, hidden_size))
        self.i2h = nn.Linear(input_size + hidden_size, hidden_size)
        self.h2o = nn.Linear(hidden_size, output_size)
        self.tanh = nn.Tanh()

    def forward(self, x: torch.Tensor, initial_hidden=None) -> torch.Tensor:
        with torch.no_grad():
            h = self.hidden if initial_hidden is None else initial_hidden
            h = h.to(x.device)
            out, self.hidden = _ext.rnn(x, h, self.i2h.weight, self.i2h.bias, self.h2o.weight, self.h2o.bias)
            return out
