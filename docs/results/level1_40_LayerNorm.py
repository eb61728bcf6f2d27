# level1_40_LayerNorm: the candidate of attempt 5, as its model wrote it (claude-by-mailbox).
# 268 µs a call; eager PyTorch: 8.35 ms, 31.11× (30.30–31.43) (first look), on NVIDIA H100 80GB HBM3.

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

_CUDA = r'''
#include <torch/types.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_runtime.h>
#include <cstdint>

constexpr int T = 1024, V = 8, WV = 6;         // float4 a thread; of w kept in shared memory
constexpr int SL = T * V;                      // float4 a block and row
constexpr int SMEM = SL * 16 + T * WV * 16;

__device__ __forceinline__ uint32_t sp(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void mb_wait(uint32_t bar, uint32_t parity) {
  uint32_t ok;
  do {
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(ok) : "r"(bar), "r"(parity) : "memory");
  } while (!ok);
}
// merge of equal counts n a lane over a warp
__device__ __forceinline__ void warp_merge(float& m, float& M2, float n) {
#pragma unroll
  for (int o = 16; o; o >>= 1) {
    float m2 = __shfl_xor_sync(~0u, m, o), k2 = __shfl_xor_sync(~0u, M2, o), d = m2 - m;
    M2 += k2 + d * d * n * 0.5f;
    m = 0.5f * (m + m2);
    n *= 2.f;
  }
}

__global__ __launch_bounds__(T, 1)
void ln(const float4* __restrict__ x, const float4* __restrict__ w, const float4* __restrict__ b,
        float4* __restrict__ y, unsigned long long* part, int rows, float eps) {
  extern __shared__ __align__(128) float4 sm[];
  float4* sw = sm + SL;
  __shared__ __align__(8) unsigned long long bar;
  __shared__ float2 red[2][32];
  __shared__ float2 bc;
  const int t = threadIdx.x, lane = t & 31, wid = t >> 5, G = gridDim.x, blk = blockIdx.x;
  const size_t row4 = (size_t)SL * G, base = (size_t)blk * SL;
  const uint32_t mb = sp(&bar);
  if (t == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(mb) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
  }
  __syncthreads();
  uint64_t pol = 0;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(pol));
  auto issue = [&](int r) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(mb), "r"(SL * 16) : "memory");
    for (int j = 0; j < V; ++j)
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                   "[%0], [%1], %2, [%3], %4;"
                   :: "r"(sp(sm + j * T)), "l"(x + (size_t)r * row4 + base + j * T), "r"(T * 16), "r"(mb), "l"(pol) : "memory");
  };
  if (t == 0) issue(0);
#pragma unroll
  for (int j = 0; j < WV; ++j) sw[j * T + t] = __ldg(w + base + j * T + t);

  const float nb = (float)(SL * 4);
  float4 v[V];
  // pass r: statistics of row r out of shared memory, then row r - 1 is written from the registers
  for (int r = 0; r <= rows; ++r) {
    if (r < rows) {
      mb_wait(mb, r & 1);
      const float z = sm[t].x;
      float s = 0.f, q = 0.f;
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const float4 c = sm[j * T + t];
        const float d0 = c.x - z, d1 = c.y - z, d2 = c.z - z, d3 = c.w - z;
        s += (d0 + d1) + (d2 + d3);
        q += (d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3);
      }
      float m = z + s * (1.0f / (V * 4)), M2 = fmaxf(q - s * s * (1.0f / (V * 4)), 0.f);
      warp_merge(m, M2, (float)(V * 4));
      if (lane == 0) red[r & 1][wid] = make_float2(m, M2);
    }
    // the last warp polls the words of row r - 1, written a pass ago
    if (r > 0 && wid == 31) {
      const unsigned long long* row = part + (size_t)(r - 1) * G;
      float a = 0.f, pm[4], pk[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        pm[i] = 0.f; pk[i] = 0.f;
        const int k = lane + i * 32;
        if (k < G) {
          unsigned long long word;
          do {
            asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(row + k) : "memory");
          } while (word == ~0ull);
          pm[i] = __uint_as_float((unsigned)word);
          pk[i] = __uint_as_float((unsigned)(word >> 32));
          a += pm[i];
        }
      }
#pragma unroll
      for (int i = 16; i; i >>= 1) a += __shfl_xor_sync(~0u, a, i);
      const float mean = a / (float)G;
      float k2 = 0.f;
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (lane + i * 32 < G) { const float d = pm[i] - mean; k2 += pk[i] + nb * d * d; }
#pragma unroll
      for (int i = 16; i; i >>= 1) k2 += __shfl_xor_sync(~0u, k2, i);
      if (lane == 0) bc = make_float2(mean, 1.0f / sqrtf(k2 / (nb * (float)G) + eps));
    }
    __syncthreads();
    if (r < rows && wid == 0) {
      const float2 p = red[r & 1][lane];
      float m = p.x, M2 = p.y;
      warp_merge(m, M2, (float)(V * 4 * 32));
      if (lane == 0) {
        const unsigned long long word = ((unsigned long long)__float_as_uint(M2) << 32) | __float_as_uint(m);
        asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" :: "l"(part + (size_t)r * G + blk), "l"(word) : "memory");
      }
    }
    if (r > 0) {
      const float M = bc.x, f = bc.y;
      float4* o = y + (size_t)(r - 1) * row4 + base;
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const float4 bb = __ldg(b + base + j * T + t);
        const float4 ww = j < WV ? sw[j * T + t] : __ldg(w + base + j * T + t);
        float4 u;
        u.x = (v[j].x - M) * f * ww.x + bb.x;
        u.y = (v[j].y - M) * f * ww.y + bb.y;
        u.z = (v[j].z - M) * f * ww.z + bb.z;
        u.w = (v[j].w - M) * f * ww.w + bb.w;
        __stcs(o + j * T + t, u);
        if (r < rows) v[j] = sm[j * T + t];
      }
    } else {
#pragma unroll
      for (int j = 0; j < V; ++j) v[j] = sm[j * T + t];
    }
    __syncthreads();                            // all have taken row r and read bc
    if (t == 0 && r + 1 < rows) issue(r + 1);
  }
}

torch::Tensor layer_norm_ahead(torch::Tensor x, torch::Tensor w, torch::Tensor b, double eps) {
  x = x.contiguous(); w = w.contiguous(); b = b.contiguous();
  long long n = w.numel();
  int rows = (int)(x.numel() / n);
  int G = (int)(n / (SL * 4));
  TORCH_CHECK(n % (SL * 4) == 0 && G <= 128 && G <= at::cuda::getCurrentDeviceProperties()->multiProcessorCount, "shape");
  auto y = torch::empty_like(x);
  auto work = torch::empty({(long long)rows * G * 2}, x.options());
  unsigned long long* part = (unsigned long long*)work.data_ptr<float>();
  cudaStream_t st = at::cuda::getCurrentCUDAStream();
  cudaMemsetAsync(part, 0xFF, (size_t)rows * G * 8, st);      // no sum is this NaN
  cudaFuncSetAttribute(ln, cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM);
  const float4* xp = (const float4*)x.data_ptr<float>();
  const float4* wp = (const float4*)w.data_ptr<float>();
  const float4* bp = (const float4*)b.data_ptr<float>();
  float4* yp = (float4*)y.data_ptr<float>();
  float e = (float)eps;
  void* args[] = {&xp, &wp, &bp, &yp, &part, &rows, &e};
  cudaLaunchCooperativeKernel((const void*)ln, dim3(G), dim3(T), args, (size_t)SMEM, st);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}
'''

_ext = load_inline(
    name="layer_norm_row_ahead",
    cpp_sources="torch::Tensor layer_norm_ahead(torch::Tensor x, torch::Tensor w, torch::Tensor b, double eps);",
    cuda_sources=_CUDA,
    functions=["layer_norm_ahead"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def __init__(self, normalized_shape: tuple):
        super(ModelNew, self).__init__()
        self.ln = nn.LayerNorm(normalized_shape=normalized_shape)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _ext.layer_norm_ahead(x, self.ln.weight, self.ln.bias, self.ln.eps)
