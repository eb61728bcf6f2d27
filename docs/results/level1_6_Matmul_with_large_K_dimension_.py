# level1_6_Matmul_with_large_K_dimension_: the candidate of attempt 5, as its model wrote it (claude-by-mailbox).
# 389 µs a call; eager PyTorch: 1.34 ms, 3.43× (3.41–3.45) (first look), on NVIDIA H100 80GB HBM3.

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

_REGS = ",".join("%%%d" % i for i in range(64))
_OUTS = ",".join('"+f"(d[%d])' % i for i in range(64))

_CUDA = r'''
#include <torch/types.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_runtime.h>
#include <cuda.h>
#include <cstdint>

constexpr int RS = 3, BS = 3;                 // stages of raw float32, of split B
constexpr int RAW = 256 * 128 + 128 * 128;    // 256 rows of A x 32 k, then 32 k x 128 columns of B
constexpr int BST = 128 * 128;                // 128 columns of B: 32 k hi | 32 k lo

__device__ __forceinline__ uint32_t sp(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void mb_wait(uint32_t bar, uint32_t parity) {
  uint32_t ok;
  do {
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(ok) : "r"(bar), "r"(parity) : "memory");
  } while (!ok);
}
__device__ __forceinline__ void mb_arrive(uint32_t bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(bar) : "memory");
}
__device__ __forceinline__ void mb_arrive_at(uint32_t bar, uint32_t cta) {
  asm volatile("{\n.reg .b32 ra;\nmapa.shared::cluster.u32 ra, %0, %1;\nmbarrier.arrive.shared::cluster.b64 _, [ra];\n}"
               :: "r"(bar), "r"(cta) : "memory");
}
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive;" ::: "memory");
  asm volatile("barrier.cluster.wait;" ::: "memory");
}
__device__ __forceinline__ void split2(float a, float b, uint32_t& h, uint32_t& l) {
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(h) : "f"(b), "f"(a));
  float ah = __uint_as_float(h << 16), bh = __uint_as_float(h & 0xffff0000u);
  float ar = a - ah, br = b - bh;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(l) : "f"(br), "f"(ar));
}
__device__ __forceinline__ void put8(char* base, uint32_t off, const float (&f)[8]) {
  uint4 h, l;
  split2(f[0], f[1], h.x, l.x);
  split2(f[2], f[3], h.y, l.y);
  split2(f[4], f[5], h.z, l.z);
  split2(f[6], f[7], h.w, l.w);
  *(uint4*)(base + off) = h;
  *(uint4*)(base + (off ^ 64u)) = l;
}
__device__ __forceinline__ void mma(float (&d)[64], const uint32_t (&a)[4], uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {MMA_REGS}, {%64,%65,%66,%67}, %68, 1, 1, 1, 0;"
               : MMA_OUTS : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ __forceinline__ uint64_t desc(uint32_t addr) {
  return (uint64_t)(addr >> 4) | (1ull << 38) | (1ull << 62);
}

__global__ __cluster_dims__(2, 1, 1) __launch_bounds__(512, 1)
void gemm(const __grid_constant__ CUtensorMap mapA, const __grid_constant__ CUtensorMap mapB,
          float* __restrict__ ws, int K, int S) {
  extern __shared__ char raw[];
  __shared__ __align__(8) unsigned long long bars[2 * RS + 2 * BS];
  char* sm = raw + ((1024u - (sp(raw) & 1023u)) & 1023u);
  const uint32_t smu = sp(sm), full = sp(bars), empty = full + 8 * RS;
  const uint32_t bfull = empty + 8 * RS, bempty = bfull + 8 * BS;
  const int tid = threadIdx.x, wg = tid >> 7, t = tid & 127, w = t >> 5, lane = t & 31;
  const int rank = blockIdx.x & 1, sp_i = blockIdx.x >> 1, n0 = rank * 128;
  const long long steps = K / 32;
  const long long s0 = steps * sp_i / S, s1 = steps * (sp_i + 1) / S;
  const int n = (int)(s1 - s0);
  if (tid == 0) {
    for (int i = 0; i < RS; ++i) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(full + 8 * i), "r"(1) : "memory");
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(empty + 8 * i), "r"(20) : "memory");
    }
    for (int i = 0; i < BS; ++i) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(bfull + 8 * i), "r"(128) : "memory");
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(bempty + 8 * i), "r"(8) : "memory");
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  cluster_sync();

  if (wg == 3) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (t == 0) {
      int s = 0, ph = 1;
      for (int it = 0; it < n; ++it) {
        if (it >= RS) mb_wait(empty + 8 * s, ph);
        const uint32_t bar = full + 8 * s, dst = smu + s * RAW;
        const int k = (int)(s0 + it) * 32;
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(bar), "r"(RAW) : "memory");
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
                     " [%0], [%1, {%3, %4}], [%2], %5;"
                     :: "r"(dst + rank * 16384), "l"(&mapA), "r"(bar), "r"(k), "r"(rank * 128), "h"((unsigned short)3)
                     : "memory");
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                     " [%0], [%1, {%3, %4}], [%2];"
                     :: "r"(dst + 32768), "l"(&mapB), "r"(bar), "r"(n0), "r"(k) : "memory");
        if (++s == RS) { s = 0; ph ^= 1; }
      }
    }
    __syncwarp();
  } else if (wg == 2) {
    // converter of B: column n0 + t; slot 8 h + j of k16 step q holds k = 8 (j / 2) + 4 q + 2 h + j % 2
    asm volatile("setmaxnreg.dec.sync.aligned.u32 64;");
    int s = 0, ph = 0, bs = 0, bph = 1;
    const uint32_t offB = (uint32_t)t * 128u;
    for (int it = 0; it < n; ++it) {
      mb_wait(full + 8 * s, ph);
      if (it >= BS) mb_wait(bempty + 8 * bs, bph);
      const float* rb = (const float*)(sm + s * RAW + 32768) + t;
      char* base = sm + RS * RAW + bs * BST;
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        float f[8];
#pragma unroll
        for (int j = 0; j < 8; ++j) f[j] = rb[(8 * (j >> 1) + 4 * (c >> 1) + 2 * (c & 1) + (j & 1)) * 128];
        put8(base, offB + ((uint32_t)(c ^ (t & 7)) << 4), f);
      }
      asm volatile("fence.proxy.async;" ::: "memory");
      mb_arrive(bfull + 8 * bs);
      __syncwarp();
      if (lane == 0) mb_arrive(empty + 8 * s);
      if (++s == RS) { s = 0; ph ^= 1; }
      if (++bs == BS) { bs = 0; bph ^= 1; }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 208;");
    const int cw = wg;
    const int g = lane >> 2, u = lane & 3;
    const int row = cw * 128 + w * 16 + g, col = u * 2;
    // A's chunk of 4 k of k16 step q is 2 u + q, swizzled by the row
    const uint32_t c0 = (uint32_t)row * 128u + ((uint32_t)((2 * u) ^ g) << 4);
    const uint32_t c1 = (uint32_t)row * 128u + ((uint32_t)((2 * u + 1) ^ g) << 4);
    float acc0[64], acc1[64];
#pragma unroll
    for (int i = 0; i < 64; ++i) { acc0[i] = 0.f; acc1[i] = 0.f; }
    int s = 0, ph = 0, bs = 0, bph = 0;
    for (int it = 0; it < n; ++it) {
      mb_wait(full + 8 * s, ph);
      const char* ab = sm + s * RAW;
      uint32_t hi[2][2][4], lo[2][2][4];        // [tile of 64 rows][k16 step][fragment]
#pragma unroll
      for (int m = 0; m < 2; ++m)
#pragma unroll
        for (int h = 0; h < 2; ++h)
#pragma unroll
          for (int k = 0; k < 2; ++k) {
            const float4 f = *(const float4*)(ab + (k ? c1 : c0) + m * 8192 + h * 1024);
            split2(f.x, f.y, hi[m][k][h], lo[m][k][h]);
            split2(f.z, f.w, hi[m][k][2 + h], lo[m][k][2 + h]);
          }
      __syncwarp();
      if (lane < 2) mb_arrive_at(empty + 8 * s, lane);
      mb_wait(bfull + 8 * bs, bph);
      const uint64_t b = desc(smu + RS * RAW + bs * BST);
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        mma(acc0, lo[0][k], b + k * 2);
        mma(acc0, hi[0][k], b + k * 2 + 4);
        mma(acc0, hi[0][k], b + k * 2);
        mma(acc1, lo[1][k], b + k * 2);
        mma(acc1, hi[1][k], b + k * 2 + 4);
        mma(acc1, hi[1][k], b + k * 2);
      }
      asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
      asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
      if (lane == 0) mb_arrive(bempty + 8 * bs);
      if (++s == RS) { s = 0; ph ^= 1; }
      if (++bs == BS) { bs = 0; bph ^= 1; }
    }
    float* out = ws + (size_t)sp_i * 65536 + n0;
#pragma unroll
    for (int i = 0; i < 64; i += 2) {
      int r = row + ((i & 3) >> 1) * 8, c = col + (i >> 2) * 8;
      *(float2*)(out + (size_t)r * 256 + c) = make_float2(acc0[i], acc0[i + 1]);
      *(float2*)(out + (size_t)(r + 64) * 256 + c) = make_float2(acc1[i], acc1[i + 1]);
    }
  }
  cluster_sync();                               // the peer may still arrive at barriers here
}

__global__ __launch_bounds__(256) void reduce(const float4* __restrict__ ws, float4* __restrict__ out, int S) {
  __shared__ float4 sm[256];
  int c = blockIdx.x * 64 + (threadIdx.x & 63), g = threadIdx.x >> 6;
  float4 a = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll 8
  for (int s = g; s < S; s += 4) {
    float4 v = ws[(size_t)s * 16384 + c];
    a.x += v.x; a.y += v.y; a.z += v.z; a.w += v.w;
  }
  sm[threadIdx.x] = a;
  __syncthreads();
  if (g == 0) {
    for (int i = 1; i < 4; ++i) {
      float4 v = sm[threadIdx.x + i * 64];
      a.x += v.x; a.y += v.y; a.z += v.z; a.w += v.w;
    }
    out[c] = a;
  }
}

static CUtensorMap make_map(const void* p, uint64_t d0, uint64_t d1, uint32_t b0, uint32_t b1, CUtensorMapSwizzle sw) {
  static void* fn = nullptr;
  if (!fn) {
    cudaDriverEntryPointQueryResult q;
    C10_CUDA_CHECK(cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &fn, cudaEnableDefault, &q));
    TORCH_CHECK(fn != nullptr, "cuTensorMapEncodeTiled");
  }
  CUtensorMap m;
  cuuint64_t dims[2] = {d0, d1}, strides[1] = {d0 * 4};
  cuuint32_t box[2] = {b0, b1}, es[2] = {1, 1};
  CUresult r = ((decltype(&cuTensorMapEncodeTiled))fn)(
      &m, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, const_cast<void*>(p), dims, strides, box, es,
      CU_TENSOR_MAP_INTERLEAVE_NONE, sw, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  TORCH_CHECK(r == CUDA_SUCCESS, "tensor map");
  return m;
}

torch::Tensor matmul_split(torch::Tensor A, torch::Tensor B) {
  A = A.contiguous(); B = B.contiguous();
  int K = (int)A.size(1);
  TORCH_CHECK(A.size(0) == 256 && B.size(1) == 256 && B.size(0) == K && K % 32 == 0, "shape");
  int S = at::cuda::getCurrentDeviceProperties()->multiProcessorCount / 2;
  auto ws = torch::empty({S, 256, 256}, A.options());
  auto out = torch::empty({256, 256}, A.options());
  auto st = at::cuda::getCurrentCUDAStream();
  CUtensorMap ma = make_map(A.data_ptr<float>(), (uint64_t)K, 256, 32, 128, CU_TENSOR_MAP_SWIZZLE_128B);
  CUtensorMap mb = make_map(B.data_ptr<float>(), 256, (uint64_t)K, 128, 32, CU_TENSOR_MAP_SWIZZLE_NONE);
  int smem = RS * RAW + BS * BST + 1024;
  cudaFuncSetAttribute(gemm, cudaFuncAttributeMaxDynamicSharedMemorySize, smem);
  gemm<<<2 * S, 512, smem, st>>>(ma, mb, ws.data_ptr<float>(), K, S);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  reduce<<<256, 256, 0, st>>>((const float4*)ws.data_ptr<float>(), (float4*)out.data_ptr<float>(), S);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}
'''.replace("MMA_REGS", _REGS).replace("MMA_OUTS", _OUTS)

_ext = load_inline(
    name="matmul_large_k_tma_mc_rs",
    cpp_sources="torch::Tensor matmul_split(torch::Tensor A, torch::Tensor B);",
    cuda_sources=_CUDA,
    functions=["matmul_split"],
    extra_cuda_cflags=["-O3", "-gencode=arch=compute_90a,code=sm_90a"],
)


class ModelNew(nn.Module):
    def __init__(self):
        super(ModelNew, self).__init__()

    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        return _ext.matmul_split(A, B)
