#include <cuda_pipeline.h>
// Row maxima of A B^T with 64 k, whose product is never stored: a warp has 16 rows, whose fragments stay in registers; 128 columns a step.
__global__ __launch_bounds__(256)
void product_max(const uint4* A, const uint4* B, unsigned short* y, int N) {
  __shared__ uint4 a[128][8], b[2][128][8];
  int t = threadIdx.x, l = t % 32, w = t / 32 * 16;
  auto fetch = [&](int n) {
    for (int i = t; n < N && i < 1024; i += 256)
      __pipeline_memcpy_async(&b[n / 128 % 2][i / 8][i % 8 ^ i / 8 % 8], B + n * 8ll + i, 16);
    __pipeline_commit();
  };
  fetch(0);
  for (int i = t; i < 1024; i += 256) a[i / 8][i % 8 ^ i / 8 % 8] = A[blockIdx.x * 1024ll + i];
  __syncthreads();
  uint4 f[4];
  for (int q = 0; q < 4; ++q) f[q] = tile(&a[w + l % 16][q * 2 + l / 16 ^ l % 8]);
  float top[2] = {-1e38f, -1e38f};
  for (int n = 0; n < N; n += 128) {
    fetch(n + 128);
    __pipeline_wait_prior(1);
    __syncthreads();
#pragma unroll 2
    for (int j = 0; j < 128; j += 16) {
      float c[2][4] = {};
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        uint4 g = tile(&b[n / 128 % 2][j + l % 16][q * 2 + l / 16 ^ l % 8]);
        mma(c[0], f[q], g.x, g.z);
        mma(c[1], f[q], g.y, g.w);
      }
      for (int i = 0; i < 8; ++i) top[i / 2 % 2] = fmaxf(top[i / 2 % 2], c[i / 4][i % 4]);
    }
    __syncthreads();
  }
  for (int e = 0; e < 2; ++e) {
    for (int o = 1; o < 4; o *= 2) top[e] = fmaxf(top[e], __shfl_xor_sync(~0u, top[e], o));
    if (l % 4 == 0) y[blockIdx.x * 128 + w + l / 4 + e * 8] = pack(top[e], 0);
  }
}
extern "C" void card(void** p, const long long* n, cudaStream_t s) { // n: M, N, K = 64
  product_max<<<n[0] / 128, 256, 0, s>>>((uint4*)p[0], (uint4*)p[1], (unsigned short*)p[2], n[1]);
}
