# level3_1_MLP: the candidate of attempt 1, as its model wrote it (claude-by-mailbox).
# 1.04 ms a call; eager PyTorch: 3.87 ms, 3.73× (3.69–3.78) (first look), on NVIDIA H100 80GB HBM3.

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

TUNE = {'SPLIT': 4, 'MT': 1}

def _mma(n):
    r = n // 2
    d = ",".join("%%%d" % i for i in range(r))
    o = ",".join('"+f"(d[%d])' % i for i in range(r))
    return ('__device__ __forceinline__ void mma(float (&d)[%d], const unsigned (&a)[4], u64 b) {\n'
            '  asm volatile("wgmma.mma_async.sync.aligned.m64n%dk16.f32.bf16.bf16 {%s},{%%%d,%%%d,%%%d,%%%d},%%%d,1,1,1,0;"\n'
            '    : %s : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));\n}\n'
            % (r, n, d, r, r + 1, r + 2, r + 3, r + 4, o))

_MT = TUNE["MT"]
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

constexpr int NB = 128, MT = @MT@, ST = @ST@;
@MMA@
constexpr int BM = 128 * MT, SB = BM * 128 + NB * 128;  // two warpgroups of MT x 64 rows; k = 32 a stage

// D[n][b] = sum_k W[n][k] X[b][k]; W float32, split in registers; X packed.
__device__ __forceinline__ void produce(const CUtensorMap* mw, const CUtensorMap* mx, unsigned base,
                                        unsigned full, unsigned empty, int n0, int b0, int k0, int steps) {
  for (int i = 0; i < steps; ++i) {
    int s = i % ST;
    if (i >= ST) bar_wait(empty + 8 * s, (i / ST - 1) & 1);
    bar_expect(full + 8 * s, SB);
    fetch(base + s * SB, mw, (k0 + i) * 32, n0, full + 8 * s);
    fetch(base + s * SB + BM * 128, mx, (k0 + i) * 64, b0, full + 8 * s);
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
      if (q == 0 && i > 0 && lane == 0) bar_arrive(empty + 8 * ((i - 1) % ST));
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
    for (int s = 0; s < ST; ++s) { bar_init(full + 8 * s, 1); bar_init(empty + 8 * s, 8); } \
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); \
  } \
  __syncthreads();

__global__ __launch_bounds__(288, 1)
void gemm3(const __grid_constant__ CUtensorMap mw, const __grid_constant__ CUtensorMap mx,
           float* __restrict__ P, int B, int N, int steps) {
  SETUP
  int n0 = blockIdx.x * BM, z = blockIdx.y;
  if (threadIdx.x >= 256) {
    if (threadIdx.x == 256) produce(&mw, &mx, base, full, empty, n0, 0, z * steps, steps);
    return;
  }
  float acc[MT][NB / 2];
  consume(acc, gen, base, full, empty, steps);
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, wg = threadIdx.x / 128;
#pragma unroll
  for (int m = 0; m < MT; ++m) {
    float* o = P + (size_t)z * B * N + n0 + (wg * MT + m) * 64 + warp * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < NB / 2; ++i)
      o[(size_t)(i / 4 * 8 + lane % 4 * 2 + i % 2) * N + i % 4 / 2 * 8] = acc[m][i];
  }
}
// v = sum of the partial sums + bias; packed (relu) or plain
__global__ __launch_bounds__(256)
void finish(const float* __restrict__ P, const float* __restrict__ bias, void* out, int S, int BN, int N, int mode) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i * 8 >= BN) return;
  float v[8] = {};
  for (int s = 0; s < S; ++s) {
    const float4* p = (const float4*)(P + (size_t)s * BN) + i * 2;
    float4 a = p[0], b = p[1];
    v[0] += a.x; v[1] += a.y; v[2] += a.z; v[3] += a.w;
    v[4] += b.x; v[5] += b.y; v[6] += b.z; v[7] += b.w;
  }
  if (mode > 0) {
    const float4* p = (const float4*)bias + i * 2 % (N / 4);
    float4 a = p[0], b = p[1];
    v[0] += a.x; v[1] += a.y; v[2] += a.z; v[3] += a.w;
    v[4] += b.x; v[5] += b.y; v[6] += b.z; v[7] += b.w;
  }
  if (mode == 1)
    for (int k = 0; k < 8; ++k) v[k] = v[k] < 0.f ? 0.f : v[k];
  if (mode == 2) {
    float4* o = (float4*)out + (size_t)i * 2;
    o[0] = make_float4(v[0], v[1], v[2], v[3]);
    o[1] = make_float4(v[4], v[5], v[6], v[7]);
  } else {
    put8((unsigned*)out + (size_t)(i / 4) * 32, i % 4, v);
  }
}
torch::Tensor mlp(torch::Tensor x, std::vector<torch::Tensor> w, std::vector<torch::Tensor> b, int64_t split) {
  auto st = at::cuda::getCurrentCUDAStream();
  x = x.contiguous();
  int B = x.size(0), K = x.size(1);
  TORCH_CHECK(B == NB && K % 32 == 0 && x.dtype() == torch::kFloat32);
  auto xp = torch::empty({B, 2 * K}, x.options().dtype(torch::kBFloat16));
  finish<<<(B * K / 8 + 255) / 256, 256, 0, st>>>(x.data_ptr<float>(), nullptr, xp.data_ptr(), 1, B * K, K, 0);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  cudaFuncSetAttribute(gemm3, cudaFuncAttributeMaxDynamicSharedMemorySize, ST * SB + 1024);
  for (size_t l = 0; l < w.size(); ++l) {
    auto W = w[l].contiguous();
    auto bias = b[l].contiguous();
    int N = W.size(0);
    TORCH_CHECK(W.size(1) == K && N % BM == 0);
    int S = split * 16384 / N;
    if (S < 1) S = 1;
    while (K % (32 * S)) --S;
    auto P = torch::empty({S, B, N}, x.options());
    gemm3<<<dim3(N / BM, S), 288, ST * SB + 1024, st>>>(tensor_map(W.data_ptr(), false, N, K, 32, BM),
      tensor_map(xp.data_ptr(), true, B, 2 * K, 64, NB), P.data_ptr<float>(), B, N, K / 32 / S);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    bool last = l + 1 == w.size();
    auto o = last ? torch::empty({B, N}, x.options()) : torch::empty({B, 2 * N}, xp.options());
    finish<<<(B * N / 8 + 255) / 256, 256, 0, st>>>(P.data_ptr<float>(), bias.data_ptr<float>(), o.data_ptr(),
      S, B * N, N, last ? 2 : 1);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    xp = o; K = N;
  }
  return xp;
}
'''
_CUDA = _CUDA.replace("@MMA@", _mma(128)).replace("@MT@", str(_MT)).replace("@ST@", "4" if _MT == 2 else "6")

_ext = load_inline(
    name="mlp_rs_%d_%d" % (_MT, TUNE["SPLIT"]),
    cpp_sources="torch::Tensor mlp(torch::Tensor x, std::vector<torch::Tensor> w, std::vector<torch::Tensor> b, int64_t split);",
    cuda_sources=_CUDA,
    functions=["mlp"],
    extra_cuda_cflags=["-O3", "-gencode=arch=compute_90a,code=sm_90a"],
)


class ModelNew(nn.Module):
    def __init__(self, input_size, layer_sizes, output_size):
        super(ModelNew, self).__init__()
        layers = []
        current_input_size = input_size
        for layer_size in layer_sizes:
            layers.append(nn.Linear(current_input_size, layer_size))
            layers.append(nn.ReLU())
            current_input_size = layer_size
        layers.append(nn.Linear(current_input_size, output_size))
        self.network = nn.Sequential(*layers)

    def forward(self, x):
        ls = [m for m in self.network if isinstance(m, nn.Linear)]
        with torch.no_grad():
            return _ext.mlp(x, [l.weight for l in ls], [l.bias for l in ls], TUNE["SPLIT"])
