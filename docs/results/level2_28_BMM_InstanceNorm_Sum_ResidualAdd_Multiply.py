# level2_28_BMM_InstanceNorm_Sum_ResidualAdd_Multiply: the candidate of attempt 8, as its model wrote it (claude-by-mailbox).
# 625 µs a call; eager PyTorch: 2.89 ms, 4.63× (4.60–4.68) (first look), on NVIDIA H100 80GB HBM3.

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

TUNE = {'PART': 128}

def _mma(n):
    r = n // 2
    d = ",".join("%%%d" % i for i in range(r))
    o = ",".join('"+f"(d[%d])' % i for i in range(r))
    return ('__device__ __forceinline__ void mma(float (&d)[%d], const unsigned (&a)[4], u64 b) {\n'
            '  asm volatile("wgmma.mma_async.sync.aligned.m64n%dk16.f32.bf16.bf16 {%s},{%%%d,%%%d,%%%d,%%%d},%%%d,1,1,1,0;"\n'
            '    : %s : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));\n}\n'
            % (r, n, d, r, r + 1, r + 2, r + 3, r + 4, o))

_NB = 256
_CUDA = r'''
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <cuda.h>
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
__device__ __forceinline__ void bar_init(unsigned b, int n) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0],%1;" :: "r"(b), "r"(n) : "memory");
}
__device__ __forceinline__ void bar_expect(unsigned b, int n) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _,[%0],%1;" :: "r"(b), "r"(n) : "memory");
}
__device__ __forceinline__ void bar_arrive(unsigned b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _,[%0];" :: "r"(b) : "memory");
}
__device__ __forceinline__ void bar_wait(unsigned b, unsigned ph) {
  unsigned ok;
  do {
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p,[%1],%2; selp.u32 %0,1,0,p;}"
      : "=r"(ok) : "r"(b), "r"(ph) : "memory");
  } while (!ok);
}
__device__ __forceinline__ unsigned pack(float x, float y) {  // x in the low half
  unsigned r;
  asm("cvt.rn.bf16x2.f32 %0,%1,%2;" : "=r"(r) : "f"(y), "f"(x));
  return r;
}
__device__ __forceinline__ void split2(float x, float y, unsigned& h, unsigned& l) {
  h = pack(x, y);
  l = pack(x - __uint_as_float(h << 16), y - __uint_as_float(h & 0xffff0000u));
}
constexpr int NB = @NB@, MT = 256 / NB, ST = 4, PART = @PART@;
@MMA@
constexpr int BM = 128 * MT, SB = BM * 128 + NB * 128;  // two warpgroups of MT x 64 rows; k = 32 a stage

// D[n][b] = sum_k W[n][k] X[b][k]; W float32, split in registers; X packed.
// A cluster of two blocks has one b0: each fetches half of X for both, and its own W.
__device__ __forceinline__ void fetch2(unsigned to, const CUtensorMap* m, int col, int row, unsigned bar) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
    "[%0],[%1,{%2,%3}],[%4],%5;"
    :: "r"(to), "l"(m), "r"(col), "r"(row), "r"(bar), "h"((unsigned short)3) : "memory");
}
__device__ __forceinline__ void arrive_at(unsigned b, int rank) {
  asm volatile("{.reg .b32 ra; mapa.shared::cluster.u32 ra,%0,%1; mbarrier.arrive.shared::cluster.b64 _,[ra];}"
    :: "r"(b), "r"(rank) : "memory");
}
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ void produce(const CUtensorMap* mw, const CUtensorMap* mx, unsigned base,
                                        unsigned full, unsigned empty, int n0, int b0, int rank, int steps) {
  for (int i = 0; i < steps; ++i) {
    int s = i % ST;
    if (i >= ST) bar_wait(empty + 8 * s, (i / ST - 1) & 1);
    bar_expect(full + 8 * s, SB);
    fetch(base + s * SB, mw, i * 32, n0, full + 8 * s);
    fetch2(base + s * SB + BM * 128 + rank * (NB / 2 * 128), mx, i * 64, b0 + rank * (NB / 2), full + 8 * s);
  }
}
__device__ __forceinline__ void consume(float (&acc)[MT][NB / 2], const unsigned char* gen, unsigned base,
                                        unsigned full, unsigned empty, int from, int to) {
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, wg = threadIdx.x / 128, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int m = 0; m < MT; ++m)
#pragma unroll
    for (int i = 0; i < NB / 2; ++i) { acc[m][i] = 0.f; asm volatile("" : "+f"(acc[m][i]) :: "memory"); }
  unsigned ah[2][4], al[2][4];
#pragma unroll 1
  for (int i = from; i < to; ++i) {
    int s = i % ST;
    bar_wait(full + 8 * s, (i / ST) & 1);
    const float* w = (const float*)(gen + s * SB);
    u64 xd = (u64)((base + s * SB + BM * 128) >> 4) | 1ull << 38 | 1ull << 62;
#pragma unroll
    for (int q = 0; q < 2 * MT; ++q) {
      const int j = q / MT, m = q % MT, e = q & 1;
      const float* p = w + ((wg * MT + m) * 64 + warp * 16 + g) * 32 + ((2 * t + j) ^ g) * 4;
      float4 u = *(const float4*)p, v = *(const float4*)(p + 256);
      split2(u.x, u.y, ah[e][0], al[e][0]);
      split2(v.x, v.y, ah[e][1], al[e][1]);
      split2(u.z, u.w, ah[e][2], al[e][2]);
      split2(v.z, v.w, ah[e][3], al[e][3]);
#pragma unroll
      for (int z = 0; z < 4; ++z) asm volatile("" : "+r"(ah[e][z]), "+r"(al[e][z]) :: "memory");
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
      mma(acc[m], al[e], xd + 2 * j);
      mma(acc[m], ah[e], xd + 4 + 2 * j);
      mma(acc[m], ah[e], xd + 2 * j);
      asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
      asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
      if (q == 0 && i > 0 && lane < 2) arrive_at(empty + 8 * ((i - 1) % ST), lane);
      __syncwarp();
    }
  }
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
  for (int m = 0; m < MT; ++m)
#pragma unroll
    for (int i = 0; i < NB / 2; ++i) asm volatile("" : "+f"(acc[m][i]) :: "memory");
}
#define SETUP \
  extern __shared__ unsigned char raw[]; \
  __shared__ __align__(8) u64 bars[2 * ST]; \
  unsigned base = (saddr(raw) + 1023u) & ~1023u; \
  const unsigned char* gen = raw + (base - saddr(raw)); \
  unsigned full = saddr(bars), empty = full + 8 * ST; \
  if (threadIdx.x == 0) { \
    for (int s = 0; s < ST; ++s) { bar_init(full + 8 * s, 1); bar_init(empty + 8 * s, 16); } \
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); \
  } \
  __syncthreads(); \
  cluster_sync();

__global__ __cluster_dims__(1, 2, 1) __launch_bounds__(288, 1)
void gemm3(const __grid_constant__ CUtensorMap mw, const __grid_constant__ CUtensorMap mx,
           float* __restrict__ D, int N, int steps) {
  SETUP
  int b0 = blockIdx.x * NB, n0 = blockIdx.y * BM;
  if (threadIdx.x >= 256) {
    if (threadIdx.x == 256) produce(&mw, &mx, base, full, empty, n0, b0, blockIdx.y & 1, steps);
    __syncwarp();
    cluster_sync();                       // nobody leaves before the other's last arrival and copy
    return;
  }
  float acc[MT][NB / 2];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, wg = threadIdx.x / 128;
  // tensor sums truncate: parts of PART * 32 k, added in float32 by the thread that owns the element
#pragma unroll 1
  for (int from = 0; from < steps; from += PART) {
    consume(acc, gen, base, full, empty, from, from + PART < steps ? from + PART : steps);
#pragma unroll
    for (int m = 0; m < MT; ++m) {
      float* o = D + (size_t)b0 * N + n0 + (wg * MT + m) * 64 + warp * 16 + lane / 4;
      if (from == 0) {
#pragma unroll
        for (int i = 0; i < NB / 2; ++i)
          o[(size_t)(i / 4 * 8 + lane % 4 * 2 + i % 2) * N + i % 4 / 2 * 8] = acc[m][i];
      } else {
#pragma unroll
        for (int i = 0; i < NB / 2; ++i)
          atomicAdd(o + (size_t)(i / 4 * 8 + lane % 4 * 2 + i % 2) * N + i % 4 / 2 * 8, acc[m][i]);
      }
    }
    __syncwarp();
  }
  cluster_sync();
}
// Packed operand: a group of 32 k is 128 bytes, 16 words high parts, 16 words low parts.
// Inside the group k = 8t + 4j + 2h + e lies at 16j + 8h + 2t + e, as the register operand is read.
// Four threads a group: thread q = 2j + h reads the pairs k = 8t + 2q and writes 16 + 16 bytes.
__global__ __launch_bounds__(256)
void prep(const float* __restrict__ x, unsigned* __restrict__ o, int n8) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i >= n8) return;
  size_t at = (size_t)(i / 4) * 32;
  int q = i % 4;
  const float2* p = (const float2*)(x + at) + q;
  unsigned h[4], l[4];
  float2 v[4];
#pragma unroll
  for (int t = 0; t < 4; ++t) v[t] = __ldg(p + 4 * t);
#pragma unroll
  for (int t = 0; t < 4; ++t) split2(v[t].x, v[t].y, h[t], l[t]);
  uint4* d = (uint4*)(o + at) + q;
  d[0] = make_uint4(h[0], h[1], h[2], h[3]);
  d[4] = make_uint4(l[0], l[1], l[2], l[3]);
}
__device__ __forceinline__ float total(float v, float* w) {
  for (int o = 16; o; o /= 2) v += __shfl_xor_sync(~0u, v, o);
  if (threadIdx.x % 32 == 0) w[threadIdx.x / 32] = v;
  __syncthreads();
  v = 0;
  for (int i = 0; i < 16; ++i) v += w[i];
  return v;
}
// one row of 8192 a block, in registers
__global__ __launch_bounds__(512)
void norm(const float* __restrict__ D, const float* __restrict__ bias, const float* __restrict__ y,
          float* __restrict__ out, int N, float eps) {
  __shared__ float w[2][16];
  size_t r = (size_t)blockIdx.x * N;
  float4 v[4], u[4];
  float s = 0, q = 0;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    int i = k * 512 + threadIdx.x;
    v[k] = ((const float4*)(D + r))[i];
    u[k] = __ldcs((const float4*)(y + r) + i);
    float4 b = ((const float4*)bias)[i];
    v[k].x += b.x; v[k].y += b.y; v[k].z += b.z; v[k].w += b.w;
    s += (v[k].x + v[k].y) + (v[k].z + v[k].w);
  }
  float mean = total(s, w[0]) / N;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    v[k].x -= mean; v[k].y -= mean; v[k].z -= mean; v[k].w -= mean;
    q += (v[k].x * v[k].x + v[k].y * v[k].y) + (v[k].z * v[k].z + v[k].w * v[k].w);
  }
  float inv = rsqrtf(total(q, w[1]) / N + eps);
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    float4 o, a = v[k], b = u[k];
    o.x = (a.x * inv + b.x) * b.x; o.y = (a.y * inv + b.y) * b.y;
    o.z = (a.z * inv + b.z) * b.z; o.w = (a.w * inv + b.w) * b.w;
    __stcs((float4*)(out + r) + k * 512 + threadIdx.x, o);
  }
}
torch::Tensor run(torch::Tensor x, torch::Tensor W, torch::Tensor bias, torch::Tensor y, double eps) {
  auto st = at::cuda::getCurrentCUDAStream();
  x = x.contiguous(); W = W.contiguous(); bias = bias.contiguous(); y = y.contiguous();
  int B = x.size(0), K = x.size(1), N = W.size(0);
  TORCH_CHECK(B % NB == 0 && K % 32 == 0 && N == 8192 && N / BM % 2 == 0 && W.size(1) == K);
  auto xp = torch::empty({B, 2 * K}, x.options().dtype(torch::kBFloat16));
  auto D = torch::empty({B, N}, x.options()), out = torch::empty({B, N}, x.options());
  prep<<<(B * K / 8 + 255) / 256, 256, 0, st>>>(x.data_ptr<float>(), (unsigned*)xp.data_ptr(), B * K / 8);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  cudaFuncSetAttribute(gemm3, cudaFuncAttributeMaxDynamicSharedMemorySize, ST * SB + 1024);
  gemm3<<<dim3(B / NB, N / BM), 288, ST * SB + 1024, st>>>(tensor_map(W.data_ptr(), false, N, K, 32, BM),
    tensor_map(xp.data_ptr(), true, B, 2 * K, 64, NB / 2), D.data_ptr<float>(), N, K / 32);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  norm<<<B, 512, 0, st>>>(D.data_ptr<float>(), bias.data_ptr<float>(), y.data_ptr<float>(), out.data_ptr<float>(), N, (float)eps);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}
'''
_PART = TUNE["PART"]
_CUDA = _CUDA.replace("@MMA@", _mma(_NB)).replace("@NB@", str(_NB)).replace("@PART@", str(_PART))

_ext = load_inline(
    name="bmm_in_rs_cluster_%d" % _PART,
    cpp_sources="torch::Tensor run(torch::Tensor x, torch::Tensor W, torch::Tensor bias, torch::Tensor y, double eps);",
    cuda_sources=_CUDA,
    functions=["run"],
    extra_cuda_cflags=["-O3", "-gencode=arch=compute_90a,code=sm_90a"],
)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, eps=1e-5, momentum=0.1):
        super(ModelNew, self).__init__()
        self.bmm = nn.Linear(in_features, out_features)
        self.instance_norm = nn.InstanceNorm2d(out_features, eps=eps, momentum=momentum)

    def forward(self, x, y):
        with torch.no_grad():
            return _ext.run(x, self.bmm.weight, self.bmm.bias, y, self.instance_norm.eps)
