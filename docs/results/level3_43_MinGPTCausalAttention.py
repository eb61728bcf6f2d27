# level3_43_MinGPTCausalAttention: the candidate of attempt 8, as its model wrote it (claude-by-mailbox).
# 1.73 ms a call; eager PyTorch: 12.97 ms, 7.50× (7.45–7.53) (first look), on NVIDIA H100 80GB HBM3.

import math
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

TUNE = {'BK': 32}


def _wg(name, n, reg, tb):
    r = n // 2
    d = ",".join(f"%{i}" for i in range(r))
    outs = ",".join(f'"+f"(d[{i}])' for i in range(r))
    if reg:
        a = f"{{%{r},%{r+1},%{r+2},%{r+3}}}"
        args = "const uint32_t* a"
        ins = '"r"(a[0]),"r"(a[1]),"r"(a[2]),"r"(a[3])'
        k = r + 4
        tail = f"p,1,1,{tb}"
    else:
        a = f"%{r}"
        args = "uint64_t a"
        ins = '"l"(a)'
        k = r + 1
        tail = f"p,1,1,0,{tb}"
    return (
        f"__device__ __forceinline__ void {name}(float (&d)[{r}], {args}, uint64_t b, int acc) {{\n"
        f'  asm volatile("{{\\n.reg .pred p;\\nsetp.ne.b32 p,%{k+1},0;\\n'
        f"wgmma.mma_async.sync.aligned.m64n{n}k16.f32.bf16.bf16 {{{d}}},{a},%{k},{tail};\\n}}\\n\"\n"
        f'    : {outs} : {ins},"l"(b),"r"(acc));\n}}\n'
    )


_CUDA = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <cuda.h>
#include <cuda_runtime.h>
#include <stdint.h>
""" + _wg("mma256", 256, False, 0) + _wg("mma64", 64, True, 0) + _wg("mma96", 96, True, 1) + r"""
__device__ __forceinline__ uint32_t saddr(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void bar_init(uint64_t* b, int n) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0],%1;" :: "r"(saddr(b)), "r"(n) : "memory");
}
__device__ __forceinline__ void bar_expect(uint64_t* b, int n) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _,[%0],%1;" :: "r"(saddr(b)), "r"(n) : "memory");
}
__device__ __forceinline__ void bar_arrive(uint64_t* b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _,[%0];" :: "r"(saddr(b)) : "memory");
}
__device__ __forceinline__ void bar_wait(uint64_t* b, uint32_t ph) {
  uint32_t ok;
  do {
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p,[%1],%2;\nselp.u32 %0,1,0,p;\n}\n"
      : "=r"(ok) : "r"(saddr(b)), "r"(ph) : "memory");
  } while (!ok);
}
__device__ __forceinline__ void tma2(uint32_t dst, const CUtensorMap* m, uint64_t* b, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0],[%1,{%3,%4}],[%2];"
    :: "r"(dst), "l"(m), "r"(saddr(b)), "r"(x), "r"(y) : "memory");
}
__device__ __forceinline__ void tma3(uint32_t dst, const CUtensorMap* m, uint64_t* b, int x, int y, int z) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0],[%1,{%3,%4,%5}],[%2];"
    :: "r"(dst), "l"(m), "r"(saddr(b)), "r"(x), "r"(y), "r"(z) : "memory");
}
__device__ __forceinline__ void wg_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wg_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> __device__ __forceinline__ void wg_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory"); }
__device__ __forceinline__ uint64_t desc(uint32_t a, uint32_t lbo, uint32_t sbo, uint64_t type) {
  return (uint64_t)((a & 0x3ffff) >> 4) | ((uint64_t)(lbo >> 4) << 16) | ((uint64_t)(sbo >> 4) << 32) | (type << 62);
}
__device__ __forceinline__ void split(float x, float y, uint32_t& h, uint32_t& l) {
  asm("cvt.rn.bf16x2.f32 %0,%1,%2;" : "=r"(h) : "f"(y), "f"(x));
  x -= __uint_as_float(h << 16);
  y -= __uint_as_float(h & 0xffff0000u);
  asm("cvt.rn.bf16x2.f32 %0,%1,%2;" : "=r"(l) : "f"(y), "f"(x));
}
__device__ __forceinline__ float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0,%1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ void split8(const float* v, uint4& h, uint4& l) {
  split(v[0], v[1], h.x, l.x);
  split(v[2], v[3], h.y, l.y);
  split(v[4], v[5], h.z, l.z);
  split(v[6], v[7], h.w, l.w);
}

// ninth part s of the split of rows 128 m .. 128 m + 127 of x (768 columns: 12288 groups of 8); thread t of nt
__device__ __forceinline__ void split_slice(const float4* x, uint4* h, uint4* l, int m, int s, int t, int nt) {
  const int lo = s * 1366, hi = min(12288, lo + 1366);
  const size_t o = (size_t)m * 12288;
  for (int i = lo + t; i < hi; i += 2 * nt) {
    int i2 = i + nt;
    bool two = i2 < hi;
    size_t p0 = o + i, p1 = o + (two ? i2 : i);
    float4 a = __ldcs(x + 2 * p0), b = __ldcs(x + 2 * p0 + 1);
    float4 c = __ldcs(x + 2 * p1), d = __ldcs(x + 2 * p1 + 1);
    uint4 p, q;
    {
      float v[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
      split8(v, p, q);
      h[p0] = p;
      l[p0] = q;
    }
    if (two) {
      float v[8] = {c.x, c.y, c.z, c.w, d.x, d.y, d.z, d.w};
      split8(v, p, q);
      h[p1] = p;
      l[p1] = q;
    }
  }
  // later read by TMA, on other multiprocessors
  __threadfence();
  asm volatile("fence.proxy.async;" ::: "memory");
}
__device__ __forceinline__ void ready_add(int* p, int v) {
  asm volatile("red.release.gpu.global.add.s32 [%0],%1;" :: "l"(p), "r"(v) : "memory");
}
__device__ __forceinline__ int ready_get(const int* p) {
  int v;
  asm volatile("ld.acquire.gpu.global.s32 %0,[%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
// inside 32: position 8a + 2b + e holds 8b + 2a + e
__device__ __forceinline__ int perm(int p) { return (p & ~31) | ((p >> 1 & 3) << 3) | ((p >> 3 & 3) << 1) | (p & 1); }
// for float32 results: position 8a + 2b + e holds 16(a/2) + 4b + 2(a%2) + e
__device__ __forceinline__ int perm4(int p) {
  return (p & ~31) | ((p >> 4 & 1) << 4) | ((p >> 1 & 3) << 2) | ((p >> 3 & 1) << 1) | (p & 1);
}
// both weights (rows of 768), and the counters to zero
__global__ __launch_bounds__(256)
void pack(const float* __restrict__ w1, const float* __restrict__ w2, uint32_t* __restrict__ h1, uint32_t* __restrict__ l1,
          uint32_t* __restrict__ h2, uint32_t* __restrict__ l2, int* __restrict__ ready, int mt) {
  constexpr int K = 768, N1 = 2304, N2 = 768;
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i < mt) ready[i] = 0;
  if (i >= (N1 + N2) * (K / 2)) return;
  bool second = i >= N1 * (K / 2);
  if (second) i -= N1 * (K / 2);
  int n = i / (K / 2), k = i % (K / 2) * 2;  // perm keeps pairs together
  const float* r = second ? w2 + (size_t)perm4(n) * K + perm(k) : w1 + (size_t)perm(n) * K + k;
  uint32_t a, b;
  split(r[0], r[1], a, b);
  (second ? h2 : h1)[i] = a;
  (second ? l2 : l1)[i] = b;
}

constexpr int BKC = BK, NS = 128 / BK, KD = 768, KT = KD / BK;
constexpr int AB = 128 * BK * 2, BB = 256 * BK * 2, STB = 2 * AB + 2 * BB;
constexpr int GS = NS * STB + 1024;
constexpr uint64_t SWT = BK == 64 ? 1 : 2;
constexpr int SBO = BK * 16;

// C[M][N] = A[M][768] B[N][768]^T + bias; 128 x 256 tiles, persistent; warpgroup 0 loads, 1 and 2 multiply.
// EPI 0: A's planes come from x; the ninth of an m-tile with a tile's index is split by that tile's CTA
// (warps 1 to 3 of warpgroup 0, up to two tiles ahead); ready[m] counts 3 for each ninth.
template <int EPI> __global__ __launch_bounds__(384, 1)
void gemm(const __grid_constant__ CUtensorMap ah, const __grid_constant__ CUtensorMap al,
          const __grid_constant__ CUtensorMap bh, const __grid_constant__ CUtensorMap bl,
          const float* __restrict__ bias, void* o0, void* o1, int ntn, int tiles, float qscale,
          const float4* x, uint4* xh, uint4* xl, int* ready) {
  extern __shared__ unsigned char raw[];
  __shared__ __align__(8) uint64_t full[NS], empty[NS];
  __shared__ __align__(16) float bs[EPI == 0 ? 2304 : 768];
  __shared__ int begun;  // tiles whose loads have begun
  uint32_t base = (saddr(raw) + 1023) & ~1023u;
  int t = threadIdx.x, wg = t / 128;
  if (t == 0) {
    *(volatile int*)&begun = 0;
    for (int i = 0; i < NS; ++i) { bar_init(full + i, 1); bar_init(empty + i, 8); }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  for (int i = t; i < ntn * 256; i += 384) bs[i] = bias[i];
  if (EPI == 0 && blockIdx.x < tiles) split_slice(x, xh, xl, blockIdx.x / 9, blockIdx.x % 9, t, 384);
  __syncthreads();
  if (EPI == 0 && t == 0 && blockIdx.x < tiles) {
    __threadfence();
    ready_add(ready + blockIdx.x / 9, 3);
  }
  if (wg == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");
    if (t == 0) {
      int it = 0;
      for (int tile = blockIdx.x, j = 1; tile < tiles; tile += gridDim.x, ++j) {
        int m = tile / ntn * 128, n = tile % ntn * 256;
        if (EPI == 0) {
          const int* r = ready + tile / ntn;
          while (ready_get(r) < 27) __nanosleep(64);
          asm volatile("fence.proxy.async;" ::: "memory");
          *(volatile int*)&begun = j;
        }
        for (int k = 0; k < KT; ++k, ++it) {
          int s = it % NS;
          if (it >= NS) bar_wait(empty + s, (it / NS - 1) & 1);
          uint32_t d = base + s * STB;
          bar_expect(full + s, STB);
          tma2(d, &ah, full + s, k * BKC, m);
          tma2(d + 2 * AB, &bh, full + s, k * BKC, n);
          tma2(d + AB, &al, full + s, k * BKC, m);
          tma2(d + 2 * AB + BB, &bl, full + s, k * BKC, n);
        }
      }
    } else if (EPI == 0 && t >= 32) {
      int j = 1;
      for (int tile = blockIdx.x + gridDim.x; tile < tiles; tile += gridDim.x, ++j) {
        if (t % 32 == 0)
          while (j > *(volatile int*)&begun + 1) __nanosleep(200);
        __syncwarp();
        split_slice(x, xh, xl, tile / 9, tile % 9, t - 32, 96);
        __syncwarp();
        if (t % 32 == 0) {
          __threadfence();
          ready_add(ready + tile / 9, 1);
        }
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 224;");
    int w = wg - 1, warp = t / 32 % 4, lane = t % 32, g = lane / 4, q = lane % 4;
    int it = 0;
    float d[128];
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      for (int k = 0; k < KT; ++k, ++it) {
        int s = it % NS;
        bar_wait(full + s, (it / NS) & 1);
        uint32_t a = base + s * STB + w * (AB / 2), b = base + s * STB + 2 * AB;
        uint64_t Ah = desc(a, 16, SBO, SWT), Al = desc(a + AB, 16, SBO, SWT);
        uint64_t Bh = desc(b, 16, SBO, SWT), Bl = desc(b + BB, 16, SBO, SWT);
        wg_fence();
#pragma unroll
        for (int j = 0; j < BKC / 16; ++j) {
          mma256(d, Al + 2 * j, Bh + 2 * j, (k | j) != 0);
          mma256(d, Ah + 2 * j, Bl + 2 * j, 1);
          mma256(d, Ah + 2 * j, Bh + 2 * j, 1);
        }
        wg_commit();
        if (k > 0) {
          wg_wait<1>();
          if (lane == 0) bar_arrive(empty + (it - 1) % NS);
        }
      }
      wg_wait<0>();
      if (lane == 0) bar_arrive(empty + (it - 1) % NS);
      int n0 = tile % ntn * 256, ld = ntn * 256;
      float f = (EPI == 0 && n0 < KD) ? qscale : 1.f;
      size_t row = (size_t)(tile / ntn) * 128 + w * 64 + warp * 16 + g;
#pragma unroll
      for (int G = 0; G < 8; ++G) {
        // a thread's 8 columns: c..c+3 and c2..c2+3
        int c = n0 + G * 32 + (EPI == 0 ? q * 8 : q * 4), c2 = c + (EPI == 0 ? 4 : 16);
        float4 b0 = *(const float4*)(bs + c), b1 = *(const float4*)(bs + c2);
        float bb[8] = {b0.x, b0.y, b0.z, b0.w, b1.x, b1.y, b1.z, b1.w};
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          float v[8];
#pragma unroll
          for (int j = 0; j < 8; ++j) v[j] = d[(4 * G + j / 2) * 4 + 2 * h + j % 2] + bb[j];
          size_t o = (row + 8 * h) * ld;
          if (EPI == 0) {
#pragma unroll
            for (int j = 0; j < 8; ++j) v[j] *= f;
            uint4 y, z;
            split8(v, y, z);
            *(uint4*)((uint16_t*)o0 + o + c) = y;
            *(uint4*)((uint16_t*)o1 + o + c) = z;
          } else {
            *(float4*)((float*)o0 + o + c) = make_float4(v[0], v[1], v[2], v[3]);
            *(float4*)((float*)o0 + o + c2) = make_float4(v[4], v[5], v[6], v[7]);
          }
        }
      }
    }
  }
}

// causal attention, heads of 96, 128 queries a block (64 a warpgroup), 64 keys a stage; planes [rows][2304] seen as 72 columns of 32
constexpr int AT = 12288, AST = 4 * AT, ANS = 3, AS = 4 * AT + ANS * AST + 1024;
__global__ __launch_bounds__(384, 1)
void attention(const __grid_constant__ CUtensorMap mh, const __grid_constant__ CUtensorMap ml,
               uint16_t* __restrict__ yh, uint16_t* __restrict__ yl, int T, int H) {
  extern __shared__ unsigned char raw[];
  __shared__ __align__(8) uint64_t full[ANS], empty[ANS], qbar;
  uint32_t base = (saddr(raw) + 1023) & ~1023u, kv = base + 4 * AT;
  int t = threadIdx.x, wg = t / 128;
  int qt = gridDim.x - 1 - blockIdx.x, head = blockIdx.y % H, row0 = blockIdx.y / H * T;
  int blocks = 2 * qt + 2;
  if (t == 0) {
    for (int i = 0; i < ANS; ++i) { bar_init(full + i, 1); bar_init(empty + i, 8); }
    bar_init(&qbar, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
  if (wg == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (t == 0) {
      bar_expect(&qbar, 4 * AT);
      for (int w = 0; w < 2; ++w) {
        tma3(base + w * 2 * AT, &mh, &qbar, 0, row0 + qt * 128 + w * 64, head * 3);
        tma3(base + w * 2 * AT + AT, &ml, &qbar, 0, row0 + qt * 128 + w * 64, head * 3);
      }
      for (int i = 0; i < blocks; ++i) {
        int s = i % ANS;
        if (i >= ANS) bar_wait(empty + s, (i / ANS - 1) & 1);
        uint32_t d = kv + s * AST;
        bar_expect(full + s, AST);
        int r = row0 + i * 64;
        tma3(d, &mh, full + s, 0, r, (H + head) * 3);
        tma3(d + AT, &ml, full + s, 0, r, (H + head) * 3);
        tma3(d + 2 * AT, &mh, full + s, 0, r, (2 * H + head) * 3);
        tma3(d + 3 * AT, &ml, full + s, 0, r, (2 * H + head) * 3);
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    int w = wg - 1, warp = t / 32 % 4, lane = t % 32, g = lane / 4, q = lane % 4;
    int mine = 2 * qt + w;
    float o[48];
#pragma unroll
    for (int i = 0; i < 48; ++i) o[i] = 0.f;
    float mx[2] = {-1e30f, -1e30f}, sum[2] = {0.f, 0.f};
    bar_wait(&qbar, 0);
    // Q as register operands: planes of 3 boxes [64 rows][32 columns], 64-byte swizzle (16-byte chunk ^ row / 2 % 4)
    uint32_t qh[6][4], ql[6][4];
    {
      const unsigned char* qp = raw + (base - saddr(raw)) + w * 2 * AT;
#pragma unroll
      for (int k = 0; k < 6; ++k)
#pragma unroll
        for (int e = 0; e < 4; ++e) {  // e: + 8 rows in bit 0, + 8 columns in bit 1
          int r = warp * 16 + g + (e & 1) * 8;
          int a = (k / 2) * 4096 + r * 64 + ((((k & 1) * 2 + (e >> 1)) ^ (r >> 1 & 3)) << 4) + q * 4;
          qh[k][e] = *(const uint32_t*)(qp + a);
          ql[k][e] = *(const uint32_t*)(qp + AT + a);
        }
    }
    for (int i = 0; i < blocks; ++i) {
      int st = i % ANS;
      bar_wait(full + st, (i / ANS) & 1);
      if (i <= mine) {
        uint32_t d = kv + st * AST;
        uint64_t Kh = desc(d, 16, 512, 2), Kl = desc(d + AT, 16, 512, 2);
        uint64_t Vh = desc(d + 2 * AT, 4096, 512, 2), Vl = desc(d + 3 * AT, 4096, 512, 2);
        float s[32];
#pragma unroll
        for (int j = 0; j < 32; ++j) s[j] = 0.f;
        wg_fence();
#pragma unroll
        for (int k = 0; k < 6; ++k) {
          int a = (k / 2) * 256 + (k % 2) * 2;  // in 16 bytes
          mma64(s, ql[k], Kh + a, 1);
          mma64(s, qh[k], Kl + a, 1);
          mma64(s, qh[k], Kh + a, 1);
        }
        wg_commit();
        wg_wait<0>();
        if (i == mine) {
          int r = warp * 16 + g;
#pragma unroll
          for (int j = 0; j < 32; ++j)
            if (j / 4 * 8 + 2 * q + j % 2 > r + (j / 2 % 2) * 8) s[j] = -1e30f;
        }
        float al[2];
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          float v = mx[h];
#pragma unroll
          for (int j = 0; j < 8; ++j) v = fmaxf(v, fmaxf(s[j * 4 + 2 * h], s[j * 4 + 2 * h + 1]));
          v = fmaxf(v, __shfl_xor_sync(~0u, v, 1));
          v = fmaxf(v, __shfl_xor_sync(~0u, v, 2));
          al[h] = ex2(mx[h] - v);
          mx[h] = v;
          float u = 0.f;
#pragma unroll
          for (int j = 0; j < 8; ++j) {
            s[j * 4 + 2 * h] = ex2(s[j * 4 + 2 * h] - v);
            s[j * 4 + 2 * h + 1] = ex2(s[j * 4 + 2 * h + 1] - v);
            u += s[j * 4 + 2 * h] + s[j * 4 + 2 * h + 1];
          }
          sum[h] = sum[h] * al[h] + u;
        }
#pragma unroll
        for (int j = 0; j < 48; ++j) o[j] *= al[j / 2 % 2];
        uint32_t ph[4][4], pl[4][4];
#pragma unroll
        for (int k = 0; k < 4; ++k)
#pragma unroll
          for (int e = 0; e < 4; ++e) split(s[k * 8 + 2 * e], s[k * 8 + 2 * e + 1], ph[k][e], pl[k][e]);
        wg_fence();
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          mma96(o, pl[k], Vh + k * 64, 1);
          mma96(o, ph[k], Vl + k * 64, 1);
          mma96(o, ph[k], Vh + k * 64, 1);
        }
        wg_commit();
        wg_wait<0>();
      }
      if (lane == 0) bar_arrive(empty + st);
    }
    float inv[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float v = sum[h];
      v += __shfl_xor_sync(~0u, v, 1);
      v += __shfl_xor_sync(~0u, v, 2);
      inv[h] = 1.f / v;
    }
    size_t row = (size_t)row0 + qt * 128 + w * 64 + warp * 16 + g;
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int G = 0; G < 3; ++G) {
        float v[8];
#pragma unroll
        for (int j = 0; j < 8; ++j) v[j] = o[(4 * G + j / 2) * 4 + 2 * h + j % 2] * inv[h];
        uint4 x, y;
        split8(v, x, y);
        size_t p = (row + 8 * h) * (H * 96) + head * 96 + G * 32 + q * 8;
        *(uint4*)(yh + p) = x;
        *(uint4*)(yl + p) = y;
      }
  }
}

typedef CUresult (*Encode)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                           const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
static Encode encoder() {
  static Encode e = nullptr;
  if (!e) {
    void* f = nullptr;
    cudaDriverEntryPointQueryResult r;
    TORCH_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000, cudaEnableDefault, &r) == cudaSuccess && f);
    e = (Encode)f;
  }
  return e;
}
static CUtensorMap map2(void* p, uint64_t rows, uint64_t cols, uint32_t box) {
  CUtensorMap m;
  cuuint64_t dim[2] = {cols, rows}, str[1] = {cols * 2};
  cuuint32_t b[2] = {(cuuint32_t)BKC, box}, e[2] = {1, 1};
  CUresult r = encoder()(&m, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, p, dim, str, b, e, CU_TENSOR_MAP_INTERLEAVE_NONE,
    BKC == 64 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
    CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  TORCH_CHECK(r == CUDA_SUCCESS, "tensor map");
  return m;
}
static CUtensorMap map3(void* p, uint64_t rows, uint64_t cols) {
  CUtensorMap m;
  cuuint64_t dim[3] = {32, rows, cols / 32}, str[2] = {cols * 2, 64};
  cuuint32_t b[3] = {32, 64, 3}, e[3] = {1, 1, 1};
  CUresult r = encoder()(&m, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, p, dim, str, b, e, CU_TENSOR_MAP_INTERLEAVE_NONE,
    CU_TENSOR_MAP_SWIZZLE_64B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  TORCH_CHECK(r == CUDA_SUCCESS, "tensor map");
  return m;
}

torch::Tensor run(torch::Tensor x, torch::Tensor w1, torch::Tensor b1, torch::Tensor w2, torch::Tensor b2) {
  x = x.contiguous(); w1 = w1.contiguous(); b1 = b1.contiguous(); w2 = w2.contiguous(); b2 = b2.contiguous();
  int B = x.size(0), T = x.size(1), C = x.size(2), H = 8;
  TORCH_CHECK(C == 768 && T % 128 == 0 && x.scalar_type() == torch::kFloat32);
  int M = B * T;
  cudaStream_t st = at::cuda::getCurrentCUDAStream();
  auto hf = x.options().dtype(torch::kBFloat16);
  auto xs = torch::empty({2, M, C}, hf), qkv = torch::empty({2, M, 3 * C}, hf);
  auto p1 = torch::empty({2, 3 * C, C}, hf), p2 = torch::empty({2, C, C}, hf);
  auto out = torch::empty({B, T, C}, x.options());
  auto P = [](torch::Tensor& t, int i) { return (void*)((uint16_t*)t.data_ptr() + (size_t)i * (t.numel() / 2)); };
  auto ready = torch::empty({M / 128}, x.options().dtype(torch::kInt32));
  pack<<<(4 * C * C / 2 + 255) / 256, 256, 0, st>>>(w1.data_ptr<float>(), w2.data_ptr<float>(), (uint32_t*)P(p1, 0), (uint32_t*)P(p1, 1),
    (uint32_t*)P(p2, 0), (uint32_t*)P(p2, 1), ready.data_ptr<int>(), M / 128);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  int sms = at::cuda::getCurrentDeviceProperties()->multiProcessorCount;
  cudaFuncSetAttribute(gemm<0>, cudaFuncAttributeMaxDynamicSharedMemorySize, GS);
  cudaFuncSetAttribute(gemm<1>, cudaFuncAttributeMaxDynamicSharedMemorySize, GS);
  cudaFuncSetAttribute(attention, cudaFuncAttributeMaxDynamicSharedMemorySize, AS);
  CUtensorMap ah = map2(P(xs, 0), M, C, 128), al = map2(P(xs, 1), M, C, 128);
  CUtensorMap bh = map2(P(p1, 0), 3 * C, C, 256), bl = map2(P(p1, 1), 3 * C, C, 256);
  CUtensorMap ch = map2(P(p2, 0), C, C, 256), cl = map2(P(p2, 1), C, C, 256);
  float qs = (float)(1.4426950408889634 / sqrt(96.0));
  int t1 = M / 128 * 9, t2 = M / 128 * 3;
  gemm<0><<<t1 < sms ? t1 : sms, 384, GS, st>>>(ah, al, bh, bl, b1.data_ptr<float>(), P(qkv, 0), P(qkv, 1), 9, t1, qs,
    (const float4*)x.data_ptr<float>(), (uint4*)P(xs, 0), (uint4*)P(xs, 1), ready.data_ptr<int>());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  CUtensorMap mh = map3(P(qkv, 0), M, 3 * C), ml = map3(P(qkv, 1), M, 3 * C);
  // x's planes are free again: y takes them
  attention<<<dim3(T / 128, B * H), 384, AS, st>>>(mh, ml, (uint16_t*)P(xs, 0), (uint16_t*)P(xs, 1), T, H);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  gemm<1><<<t2 < sms ? t2 : sms, 384, GS, st>>>(ah, al, ch, cl, b2.data_ptr<float>(), out.data_ptr(), nullptr, 3, t2, 1.f,
    nullptr, nullptr, nullptr, nullptr);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}
"""

_ext = load_inline(
    name=f"gpt_planes_ahead_{TUNE['BK']}",
    cpp_sources="torch::Tensor run(torch::Tensor x, torch::Tensor w1, torch::Tensor b1, torch::Tensor w2, torch::Tensor b2);",
    cuda_sources=_CUDA,
    functions=["run"],
    extra_cuda_cflags=["-O3", "-gencode=arch=compute_90a,code=sm_90a", f"-DBK={TUNE['BK']}"],
)


class ModelNew(nn.Module):
    def __init__(self, n_embd, n_head, attn_pdrop, resid_pdrop, max_seqlen):
        super().__init__()
        assert n_embd % n_head == 0
        self.c_attn = nn.Linear(n_embd, 3 * n_embd)
        self.c_proj = nn.Linear(n_embd, n_embd)
        self.attn_dropout = nn.Dropout(attn_pdrop)
        self.resid_dropout = nn.Dropout(resid_pdrop)
        self.register_buffer("bias", torch.tril(torch.ones(max_seqlen, max_seqlen))
                                     .view(1, 1, max_seqlen, max_seqlen))
        self.n_head = n_head
        self.n_embd = n_embd

    def forward(self, x):
        with torch.no_grad():
            return _ext.run(x, self.c_attn.weight, self.c_attn.bias, self.c_proj.weight, self.c_proj.bias)
