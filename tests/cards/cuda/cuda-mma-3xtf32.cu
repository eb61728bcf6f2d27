// C = A B^T: 64 x 64 a block, a warp has 16 rows; 32 k a step.
__global__ __launch_bounds__(128) void gemm(const float* A, const float* B, float* C, int N, int K) {
  constexpr int P = 36;
  __shared__ __align__(16) float a[64 * P], b[64 * P];
  int t = threadIdx.x, w = t / 32, lane = t % 32;
  A += blockIdx.y * 64 * (size_t)K;
  B += blockIdx.x * 64 * (size_t)K;
  float c[8][4] = {};
  for (int k = 0; k < K; k += 32) {
    for (int i = t; i < 512; i += 128) {
      int r = i / 8, q = i % 8 * 4;
      *(float4*)&a[r * P + q] = *(const float4*)(A + r * (size_t)K + k + q);
      *(float4*)&b[r * P + q] = *(const float4*)(B + r * (size_t)K + k + q);
    }
    __syncthreads();
    for (int q = 0; q < 32; q += 8) step<8, P>(c, a + w * 16 * P + q, b + q);
    __syncthreads();
  }
  for (int j = 0; j < 8; ++j)
    for (int e = 0; e < 4; ++e) {
      int r = blockIdx.y * 64 + w * 16 + lane / 4 + e / 2 * 8;
      C[r * (size_t)N + blockIdx.x * 64 + j * 8 + lane % 4 * 2 + e % 2] = c[j][e];
    }
}
extern "C" void card(void** p, const long long* n, cudaStream_t s) {
  gemm<<<dim3(n[1] / 64, n[0] / 64), 128, 0, s>>>((float*)p[0], (float*)p[1], (float*)p[2], n[1], n[2]);
}
