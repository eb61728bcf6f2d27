# level2_33_Gemm_Scale_BatchNorm: the candidate of attempt 5, as its model wrote it (claude-by-mailbox).
# 586 µs a call; eager PyTorch: 2.81 ms, 4.79× (4.73–4.83) (first look), on NVIDIA H100 80GB HBM3.

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

def _mma(n):
    r = n // 2
    d = ",".join("%%%d" % i for i in range(r))
    o = ",".join('"+f"(d[%d])' % i for i in range(r))
    return ('__device__ __forceinline__ void mma(float (&d)[%d], const unsigned (&a)[4], u64 b) {\n'
            '  asm volatile("wgmma.mma_async.sync.aligned.m64n%dk16.f32.bf16.bf16 {%s},{%%%d,%%%d,%%%d,%%%d},%%%d,1,1,1,0;"\n'
            '    : %s : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));\n}\n'
            % (r, n, d, r, r + 1, r + 2, r + 3, r + 4, o))

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
__device__ __forceinline__ void fetch2(unsigned to, const CUtensorMap* m, int col, int row, unsigned bar) {  // into both blocks
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
    "[%0],[%1,{%2,%3}],[%4],%5;"
    :: "r"(to), "l"(m), "r"(col), "r"(row), "r"(bar), "h"((unsigned short)3) : "memory");
}
__device__ __forceinline__ void bar_arrive_at(unsigned b, unsigned rank) {
  asm volatile("{.reg .b32 ra; mapa.shared::cluster.u32 ra,%0,%1; mbarrier.arrive.shared::cluster.b64 _,[ra];}"
    :: "r"(b), "r"(rank) : "memory");
}
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
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
// Packed operand: a group of 32 k is 128 bytes, 16 words high parts, 16 words low parts.
// Inside the group k = 8t + 4j + 2h + e lies at 16j + 8h + 2t + e, as the register operand is read.
__device__ __forceinline__ void put8(unsigned* o, int t, const float* v) {
#pragma unroll
  for (int q = 0; q < 4; ++q) {  // q = 2j + h
    unsigned h, l;
    split2(v[2 * q], v[2 * q + 1], h, l);
    o[q * 4 + t] = h; o[16 + q * 4 + t] = l;
  }
}
#include <cooperative_groups.h>

constexpr int NB = 256, MT = 1, ST = 4;
@MMA@
constexpr int BM = 128 * MT, SB = BM * 128 + NB * 128;  // two warpgroups of MT x 64 rows; k = 32 a stage

// D[n][b] = sum_k W[n][k] X[b][k]; W float32, split in registers; X packed.
// The pair of blocks has one x tile: each loads half of its rows for both.
__device__ __forceinline__ void produce(const CUtensorMap* mw, const CUtensorMap* mx, unsigned base,
                                        unsigned full, unsigned empty, int n0, int b0, int rank, int steps) {
  for (int i = 0; i < steps; ++i) {
    int s = i % ST;
    if (i >= ST) bar_wait(empty + 8 * s, (i / ST - 1) & 1);
    bar_expect(full + 8 * s, SB);
    fetch2(base + s * SB + BM * 128 + rank * (NB / 2) * 128, mx, i * 64, b0 + rank * (NB / 2), full + 8 * s);
    fetch(base + s * SB, mw, i * 32, n0, full + 8 * s);
  }
}
__device__ __forceinline__ void consume(float (&acc)[MT][NB / 2], const unsigned char* gen, unsigned base,
                                        unsigned full, unsigned empty, int steps) {
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, wg = threadIdx.x / 128, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int m = 0; m < MT; ++m)
#pragma unroll
    for (int i = 0; i < NB / 2; ++i) { acc[m][i] = 0.f; asm volatile("" : "+f"(acc[m][i]) :: "memory"); }
  unsigned ah[2][4], al[2][4];
  for (int i = 0; i < steps; ++i) {
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
      if (q == 0 && i > 0 && lane < 2) bar_arrive_at(empty + 8 * ((i - 1) % ST), lane);
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
  }

// y = norm((x w^T + bias) * scale). A cluster has two feature tiles of one batch tile; tickets order the clusters so
// that the four batch tiles of a feature tile run together and can wait for each other. cnt[0]: tickets,
// cnt[1 + tile]: batch tiles whose statistics are written; prep makes them zero.
__global__ __cluster_dims__(2, 1, 1) __launch_bounds__(288, 1)
void gemm_bn2(const __grid_constant__ CUtensorMap mw, const __grid_constant__ CUtensorMap mx,
              const float* __restrict__ bias, const float* __restrict__ scale, const float* __restrict__ gamma,
              const float* __restrict__ beta, float* rm, float* rv, long long* count, float* __restrict__ out,
              float2* part, int* cnt, int N, int steps, float eps, float momentum) {
  SETUP
  __shared__ int ticket;
  int rank = blockIdx.x & 1;
  asm volatile("griddepcontrol.wait;" ::: "memory");
  if (threadIdx.x == 0 && rank == 0) ticket = atomicAdd(cnt, 1);
  __syncthreads();
  cluster_arrive(); cluster_wait();
  int tk = *cooperative_groups::this_cluster().map_shared_rank(&ticket, 0);
  int bt = tk % 4, nt = tk / 4 * 2 + rank;
  int b0 = bt * NB, n0 = nt * BM;
  if (threadIdx.x >= 256) {
    if (threadIdx.x == 256) produce(&mw, &mx, base, full, empty, n0, b0, rank, steps);
    __syncwarp();
    cluster_arrive(); cluster_wait();
    return;
  }
  float acc[MT][NB / 2];
  consume(acc, gen, base, full, empty, steps);
  cluster_arrive();  // the other block's barriers and ticket are no longer used
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  int r0 = n0 + warp * 16 + g;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float sc = scale[r0 + h * 8], bi = bias[r0 + h * 8], s = 0, q = 0;
#pragma unroll
    for (int i = 0; i < 32; ++i)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& v = acc[0][i * 4 + h * 2 + e];
        v = (v + bi) * sc; s += v;
      }
    s += __shfl_xor_sync(~0u, s, 1); s += __shfl_xor_sync(~0u, s, 2);
    s /= 256;
#pragma unroll
    for (int i = 0; i < 32; ++i)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float d = acc[0][i * 4 + h * 2 + e] - s;
        q += d * d;
      }
    q += __shfl_xor_sync(~0u, q, 1); q += __shfl_xor_sync(~0u, q, 2);
    if (t == 0) part[(size_t)bt * N + r0 + h * 8] = make_float2(s, q);
  }
  __threadfence();
  asm volatile("bar.sync 1, 256;" ::: "memory");
  if (threadIdx.x == 0) {
    int* c = cnt + 1 + nt;
    atomicAdd(c, 1);
    int v;
    do {
      asm volatile("ld.acquire.gpu.global.s32 %0,[%1];" : "=r"(v) : "l"(c) : "memory");
      if (v < 4) __nanosleep(100);
    } while (v < 4);
    __threadfence();
  }
  asm volatile("bar.sync 1, 256;" ::: "memory");
  float mean[2], mul[2], add[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    int n = r0 + h * 8;
    float2 p[4];
    float a = 0, q = 0;
#pragma unroll
    for (int k = 0; k < 4; ++k) { p[k] = __ldcg(part + (size_t)k * N + n); a += p[k].x; }
    a /= 4;
#pragma unroll
    for (int k = 0; k < 4; ++k) q += p[k].y + 256.f * (p[k].x - a) * (p[k].x - a);
    mean[h] = a;
    mul[h] = rsqrtf(q / 1024.f + eps) * gamma[n];
    add[h] = beta[n];
    if (t == 0 && bt == 0) {
      rm[n] = (1.f - momentum) * rm[n] + momentum * a;
      rv[n] = (1.f - momentum) * rv[n] + momentum * (q / 1023.f);
      if (n == 0) *count += 1;
    }
  }
  float* o = out + (size_t)b0 * N + r0;
#pragma unroll
  for (int i = 0; i < NB / 2; ++i) {
    const int h = i % 4 / 2;
    __stcs(o + (size_t)(i / 4 * 8 + t * 2 + i % 2) * N + h * 8, (acc[0][i] - mean[h]) * mul[h] + add[h]);
  }
  cluster_wait();
}
// a thread has the words q = 2j + h of a group of 32 k: 16 bytes of high, 16 bytes of low parts
__global__ __launch_bounds__(256)
void prep(const float* __restrict__ x, unsigned* o, int n8, int* cnt, int counters) {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  if (blockIdx.x == 0)
    for (int c = threadIdx.x; c < counters; c += 256) cnt[c] = 0;
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i >= n8) return;
  int q = i % 4;
  size_t at = (size_t)(i / 4) * 32;
  const float* p = x + at + 2 * q;
  float2 v[4];
#pragma unroll
  for (int t = 0; t < 4; ++t) v[t] = *(const float2*)(p + 8 * t);
  unsigned h[4], l[4];
#pragma unroll
  for (int t = 0; t < 4; ++t) split2(v[t].x, v[t].y, h[t], l[t]);
  *(uint4*)(o + at + q * 4) = make_uint4(h[0], h[1], h[2], h[3]);
  *(uint4*)(o + at + 16 + q * 4) = make_uint4(l[0], l[1], l[2], l[3]);
}
torch::Tensor run(torch::Tensor x, torch::Tensor W, torch::Tensor bias, torch::Tensor scale, torch::Tensor gamma,
                  torch::Tensor beta, torch::Tensor rm, torch::Tensor rv, torch::Tensor count, double eps, double momentum) {
  auto st = at::cuda::getCurrentCUDAStream();
  x = x.contiguous(); W = W.contiguous(); bias = bias.contiguous(); scale = scale.contiguous();
  gamma = gamma.contiguous(); beta = beta.contiguous();
  int B = x.size(0), K = x.size(1), N = W.size(0);
  TORCH_CHECK(B == 1024 && K % 32 == 0 && N % 256 == 0 && W.size(1) == K);
  auto xp = torch::empty({B, 2 * K}, x.options().dtype(torch::kBFloat16));
  auto out = torch::empty({B, N}, x.options());
  auto part = torch::empty({4, N, 2}, x.options());
  int counters = 1 + N / BM;
  auto cnt = torch::empty({counters}, x.options().dtype(torch::kInt32));
  prep<<<(B * K / 8 + 255) / 256, 256, 0, st>>>(x.data_ptr<float>(), (unsigned*)xp.data_ptr(), B * K / 8,
    cnt.data_ptr<int>(), counters);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  C10_CUDA_CHECK(cudaFuncSetAttribute(gemm_bn2, cudaFuncAttributeMaxDynamicSharedMemorySize, ST * SB + 1024));
  cudaLaunchConfig_t cfg = {};
  cfg.gridDim = dim3(4 * (N / BM));
  cfg.blockDim = dim3(288);
  cfg.dynamicSmemBytes = ST * SB + 1024;
  cfg.stream = st;
  cudaLaunchAttribute attr[1] = {};
  attr[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attr[0].val.programmaticStreamSerializationAllowed = 1;
  cfg.attrs = attr;
  cfg.numAttrs = 1;
  CUtensorMap tw = tensor_map(W.data_ptr(), false, N, K, 32, BM);
  CUtensorMap tx = tensor_map(xp.data_ptr(), true, B, 2 * K, 64, NB / 2);
  const float *pb = bias.data_ptr<float>(), *ps = scale.data_ptr<float>(), *pg = gamma.data_ptr<float>(),
    *pe = beta.data_ptr<float>();
  C10_CUDA_CHECK(cudaLaunchKernelEx(&cfg, gemm_bn2, tw, tx, pb, ps, pg, pe, rm.data_ptr<float>(), rv.data_ptr<float>(),
    (long long*)count.data_ptr(), out.data_ptr<float>(), (float2*)part.data_ptr(), cnt.data_ptr<int>(), N, K / 32,
    (float)eps, (float)momentum));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}
'''
_CUDA = _CUDA.replace("@MMA@", _mma(256))

_ext = load_inline(
    name="gemm_scale_bn_pair",
    cpp_sources="torch::Tensor run(torch::Tensor x, torch::Tensor W, torch::Tensor bias, torch::Tensor scale, torch::Tensor gamma, torch::Tensor beta, torch::Tensor rm, torch::Tensor rv, torch::Tensor count, double eps, double momentum);",
    cuda_sources=_CUDA,
    functions=["run"],
    extra_cuda_cflags=["-O3", "-gencode=arch=compute_90a,code=sm_90a"],
)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, scale_shape, eps=1e-5, momentum=0.1):
        super(ModelNew, self).__init__()
        self.gemm = nn.Linear(in_features, out_features)
        self.scale = nn.Parameter(torch.randn(scale_shape))
        self.bn = nn.BatchNorm1d(out_features, eps=eps, momentum=momentum)

    def forward(self, x):
        b = self.bn
        with torch.no_grad():
            return _ext.run(x, self.gemm.weight, self.gemm.bias, self.scale, b.weight, b.bias,
                            b.running_mean, b.running_var, b.num_batches_tracked, b.eps, b.momentum)
