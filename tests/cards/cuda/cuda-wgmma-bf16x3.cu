// C = A B^T: 128 x 128 a block of two warpgroups; 64 k a step, two stages of shared memory.
__global__ __launch_bounds__(256) void gemm(const float* A, const float* B, float* C, int N, int K) {
  extern __shared__ __align__(1024) unsigned s[]; 
  int t = threadIdx.x, l = t % 32;
  A += (blockIdx.y * 128 + t / 32 * 16 + l / 4) * (size_t)K + l % 4 * 4;
  B += (blockIdx.x * 128 + t / 16) * (size_t)K + t % 16 * 4;
  float c[64] = {}, d[64];
  float4 u[8], v[8];
  auto load = [&](int k) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      u[i] = *(const float4*)(A + i % 2 * 8 * (size_t)K + k + i / 2 * 16);
      v[i] = *(const float4*)(B + i * 16 * (size_t)K + k);
    }
  };
  load(0);
  for (int k = 0; k < K; k += 64) {
    unsigned* w = s + k / 64 % 2 * 8192;
    uint4 h[4], o[4];
#pragma unroll
    for (int q = 0; q < 4; ++q) split(u[2 * q], u[2 * q + 1], h[q], o[q]);
#pragma unroll
    for (int i = 0; i < 8; ++i) put(w + i / 4 * 4096, i % 4 * 16 + t / 16, t % 16, v[i]);
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    if (k + 64 < K) load(k + 64);
#pragma unroll
    for (int i = 0; i < 64; ++i) asm volatile("mov.f32 %0,0f00000000;" : "=f"(d[i])); // before the fence
    fence();
#pragma unroll
    for (int q = 0; q < 8; ++q) mul3(d + q % 2 * 32, h[q / 2], o[q / 2], w + q % 2 * 4096, q / 2);
    done();
#pragma unroll
    for (int i = 0; i < 64; ++i) c[i] += d[i];
  }
#pragma unroll
  for (int i = 0; i < 64; ++i)
    C[(blockIdx.y * 128 + t / 32 * 16 + l / 4 + i / 2 % 2 * 8) * (size_t)N + blockIdx.x * 128 + i / 4 * 8 + l % 4 * 2 + i % 2] = c[i];
}
extern "C" void card(void** p, const long long* n, cudaStream_t s) {
  cudaFuncSetAttribute(gemm, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536);
  gemm<<<dim3(n[1] / 128, n[0] / 128), 256, 65536, s>>>((float*)p[0], (float*)p[1], (float*)p[2], n[1], n[2]);
}
