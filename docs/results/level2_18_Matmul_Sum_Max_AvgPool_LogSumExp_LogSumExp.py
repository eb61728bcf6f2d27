# level2_18_Matmul_Sum_Max_AvgPool_LogSumExp_LogSumExp: the candidate of attempt 6, as its model wrote it (claude-by-mailbox).
# 103 µs a call; eager PyTorch: 2.84 ms, 27.43× (27.36–27.50) (first look), on NVIDIA H100 80GB HBM3.

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

TUNE = {'ROWS': 64, 'RING': 96}

_CUDA = r'''
#include <torch/types.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_runtime.h>
#include <cuda.h>
#include <cstdint>

constexpr int K = 8192, N = 8192, B = 1024, C = 64, NB = K / C;
constexpr int RS = ROWS, TILE = RS * C, BYTES = TILE * 4, NST = RING * 1024 / BYTES, SMEM = NST * BYTES;
constexpr int TC = 512, NW = TC / 32, JR = RS / 32;         // consumers; rows of a tile a thread
constexpr int NWT = N / RS, NXT = B / RS, TG = 16 / JR;     // tiles of W, of x; x tiles a reduction
static_assert(NXT % TG == 0 && JR % 2 == 0 && NST >= 2, "tiles");

__device__ __forceinline__ uint32_t sp(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void wait(uint32_t bar, uint32_t parity) {
  uint32_t ok;
  do {
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(ok) : "r"(bar), "r"(parity) : "memory");
  } while (!ok);
}
__device__ __forceinline__ void arrive(uint32_t bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(bar) : "memory");
}
__device__ __forceinline__ void consumers() { asm volatile("bar.sync 1, 512;" ::: "memory"); }

__global__ __launch_bounds__(TC + 32, 1)
void fused(const __grid_constant__ CUtensorMap mw, const __grid_constant__ CUtensorMap mx,
           const float* __restrict__ bias, float* y, unsigned* cnt) {
  extern __shared__ __align__(1024) float ring[];           // [NST][RS][64]
  __shared__ __align__(8) unsigned long long full[NST], empty[NST];
  __shared__ __align__(16) float red[NW][C];
  __shared__ __align__(16) float vs[C];
  __shared__ float sbias;
  const int t = threadIdx.x, lane = t & 31, w = t >> 5, blk = blockIdx.x;
  if (t == 0) {
    for (int i = 0; i < NST; ++i) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(sp(full + i)) : "memory");
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(sp(empty + i)), "r"(NW) : "memory");
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
  }
  if (blk == 0) {                                           // y starts at zero
    for (int i = t; i < B; i += TC + 32) y[i] = 0.f;
    __threadfence();
  }
  __syncthreads();

  if (w == NW) {                                            // producer
    if (lane == 0) {
      for (int i = 0; i < NWT + NXT; ++i) {
        const int s = i % NST, r = i / NST;
        if (r > 0) wait(sp(empty + s), (r - 1) & 1);
        const uint32_t bar = sp(full + s), dst = sp(ring + (size_t)s * TILE);
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(bar), "r"(BYTES) : "memory");
        const CUtensorMap* m = i < NWT ? &mw : &mx;
        const int row = (i < NWT ? i : i - NWT) * RS;
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                     :: "r"(dst), "l"((unsigned long long)m), "r"(blk * C), "r"(row), "r"(bar) : "memory");
      }
    }
    return;
  }

  if (blk == 0 && t == 0) {
    __threadfence();
    atomicExch(cnt, 1u);
  }
  const int l = t & 15, g = t >> 4;                         // columns 4 l .., rows g * JR .. of a tile
  const float* mine = ring + g * JR * C + l * 4;
  float4 a = make_float4(0.f, 0.f, 0.f, 0.f), b = a;
  int s = 0;
  uint32_t ph = 0;
#pragma unroll 1
  for (int i = 0; i < NWT; ++i) {
    wait(sp(full + s), ph);
    const float* p = mine + s * TILE;
#pragma unroll
    for (int j = 0; j < JR; j += 2) {
      const float4 u = *(const float4*)(p + j * C), q = *(const float4*)(p + (j + 1) * C);
      a.x += u.x; a.y += u.y; a.z += u.z; a.w += u.w;
      b.x += q.x; b.y += q.y; b.z += q.z; b.w += q.w;
    }
    __syncwarp();
    if (lane == 0) arrive(sp(empty + s));
    if (++s == NST) { s = 0; ph ^= 1; }
  }
  a.x += b.x; a.y += b.y; a.z += b.z; a.w += b.w;
  a.x += __shfl_xor_sync(~0u, a.x, 16);
  a.y += __shfl_xor_sync(~0u, a.y, 16);
  a.z += __shfl_xor_sync(~0u, a.z, 16);
  a.w += __shfl_xor_sync(~0u, a.w, 16);
  if (lane < 16) *(float4*)&red[w][lane * 4] = a;
  if (w == NW - 1) {                                        // the block's share of the bias
    float f = 0.f;
    for (int i = lane; i < N / NB; i += 32) f += __ldg(bias + blk * (N / NB) + i);
#pragma unroll
    for (int o = 16; o; o >>= 1) f += __shfl_xor_sync(~0u, f, o);
    if (lane == 0) sbias = f;
  }
  consumers();
  if (t < C) {
    float s0 = 0.f, s1 = 0.f;
#pragma unroll
    for (int i = 0; i < NW; i += 2) { s0 += red[i][t]; s1 += red[i + 1][t]; }
    vs[t] = s0 + s1;
  }
  if (t == TC - 1) {                                        // y is zero: said long ago
    unsigned f;
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(f) : "l"(cnt) : "memory");
    } while (f == 0u);
  }
  consumers();

  const float4 v = *(const float4*)&vs[l * 4];
  const float bs = sbias;
#pragma unroll 1
  for (int gr = 0; gr < NXT / TG; ++gr) {
    float d[16];
#pragma unroll
    for (int tt = 0; tt < TG; ++tt) {
      wait(sp(full + s), ph);
      const float* p = mine + s * TILE;
#pragma unroll
      for (int j = 0; j < JR; ++j) {
        const float4 u = *(const float4*)(p + j * C);
        d[tt * JR + j] = (u.x * v.x + u.y * v.y) + (u.z * v.z + u.w * v.w);
      }
      __syncwarp();
      if (lane == 0) arrive(sp(empty + s));
      if (++s == NST) { s = 0; ph ^= 1; }
    }
    // over 16 lanes: lane l ends with value l
#pragma unroll
    for (int st = 0; st < 4; ++st) {
      const int n = 8 >> st;
      const bool up = (l & n) != 0;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if (i < n) {
          const float send = up ? d[i] : d[i + n];
          const float keep = up ? d[i + n] : d[i];
          d[i] = keep + __shfl_xor_sync(~0u, send, n);
        }
      }
    }
    atomicAdd(y + (gr * TG + l / JR) * RS + g * JR + l % JR, d[0] + bs);
  }
  if (t == TC - 1) {                                        // past its wait on the flag
    const unsigned old = atomicInc(cnt + 1, NB - 1);        // wraps to zero
    if (old == NB - 1) atomicExch(cnt, 0u);
  }
}

static CUtensorMap encode(const float* p, int rows) {
  typedef decltype(&cuTensorMapEncodeTiled) Fn;
  static Fn fn = nullptr;
  if (!fn) {
    void* q = nullptr;
    cudaDriverEntryPointQueryResult res;
#if CUDART_VERSION >= 12050
    C10_CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &q, 12000, cudaEnableDefault, &res));
#else
    C10_CUDA_CHECK(cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &q, cudaEnableDefault, &res));
#endif
    TORCH_CHECK(q != nullptr, "cuTensorMapEncodeTiled");
    fn = (Fn)q;
  }
  CUtensorMap m;
  cuuint64_t dims[2] = {(cuuint64_t)K, (cuuint64_t)rows};
  cuuint64_t strides[1] = {(cuuint64_t)K * 4};
  cuuint32_t box[2] = {(cuuint32_t)C, (cuuint32_t)RS};
  cuuint32_t es[2] = {1, 1};
  CUresult r = fn(&m, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, (void*)p, dims, strides, box, es,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  TORCH_CHECK(r == CUDA_SUCCESS, "tensor map");
  return m;
}

torch::Tensor linear_sum(torch::Tensor x, torch::Tensor W, torch::Tensor bias, torch::Tensor cnt) {
  x = x.contiguous(); W = W.contiguous(); bias = bias.contiguous();
  TORCH_CHECK(x.dim() == 2 && x.size(0) == B && x.size(1) == K && W.size(0) == N && W.size(1) == K && bias.numel() == N, "shape");
  auto y = torch::empty({B, 1}, x.options());
  static bool ready = false;
  if (!ready) {
    C10_CUDA_CHECK(cudaFuncSetAttribute(fused, cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM));
    ready = true;
  }
  CUtensorMap mw = encode(W.data_ptr<float>(), N), mx = encode(x.data_ptr<float>(), B);
  fused<<<NB, TC + 32, SMEM, at::cuda::getCurrentCUDAStream()>>>(
      mw, mx, bias.data_ptr<float>(), y.data_ptr<float>(), (unsigned*)cnt.data_ptr<int>());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}
'''

_ext = load_inline(
    name="linear_sum_tma_ring",
    cpp_sources="torch::Tensor linear_sum(torch::Tensor x, torch::Tensor W, torch::Tensor bias, torch::Tensor cnt);",
    cuda_sources=_CUDA,
    functions=["linear_sum"],
    extra_cuda_cflags=["-O3", "-DROWS=" + str(TUNE["ROWS"]), "-DRING=" + str(TUNE["RING"])],
)

_counters = {}


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super(ModelNew, self).__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        cnt = _counters.get(x.device)
        if cnt is None:
            cnt = _counters[x.device] = torch.zeros(2, dtype=torch.int32, device=x.device)
        return _ext.linear_sum(x, self.linear.weight, self.linear.bias, cnt)
