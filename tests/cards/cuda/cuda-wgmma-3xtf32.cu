// C = A B^T: 64 x 64 a block of one warpgroup; 32 k a step.
__global__ __launch_bounds__(128) void gemm(const float* A, const float* B, float* C, int N, int K) {
  __shared__ __align__(1024) float s[8192];
  A += blockIdx.y * 64 * (size_t)K;
  B += blockIdx.x * 64 * (size_t)K;
  float d[32] = {};
  for (int k = 0; k < K; k += 32) {
    put(s, A + k, K);
    put(s + 4096, B + k, K);
    __syncthreads();
    step(d, s);
    __syncthreads();
  }
  int w = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    int r = blockIdx.y * 64 + w * 16 + lane / 4 + i / 2 % 2 * 8;
    C[r * (size_t)N + blockIdx.x * 64 + i / 4 * 8 + lane % 4 * 2 + i % 2] = d[i];
  }
}
extern "C" void card(void** p, const long long* n, cudaStream_t s) {
  gemm<<<dim3(n[1] / 64, n[0] / 64), 128, 0, s>>>((float*)p[0], (float*)p[1], (float*)p[2], n[1], n[2]);
}
