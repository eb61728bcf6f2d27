// C = A B^T: 128 x 128 a block of eight warps with 64 x 32 each; 32 k a step; two blocks an SM.
__global__ __launch_bounds__(256, 2)
void gemm(const float* A, const float* B, float* C, int N, int K) {
  __shared__ uint4 s[256][8];
  int t = threadIdx.x, g = t % 32 / 4, u = t % 4, y = t / 32 % 2 * 32 + g, x = 128 + t / 64 * 32 + g;
  A += blockIdx.y * 128ll * K; B += blockIdx.x * 128ll * K;
  float c[4][4][4] = {};
  float4 v[4], w[4];
  auto load = [&](int k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      int p = i % 2 * 32 + t / 8, r = p / 8 * 16 + p % 8;
      const float* f = (i < 2 ? A : B) + (size_t)r * K + k;
      v[i] = *(float4*)f, w[i] = *(float4*)(f + 8ll * K);
    }
  };
  for (int k = t % 8 * 4; k < K; k += 32) {
    load(k);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      int p = i % 2 * 32 + t / 8, r = p / 8 * 16 + p % 8, o = t % 8 ^ p % 2 * 4;
      if (i < 2) split(v[i], w[i], s[p][o], s[p + 64][o]);
      else { s[128 + r][o] = split(v[i]); s[128 + r + 8][o] = split(w[i]); }
    }
    __syncthreads();
#pragma unroll 1
    for (int q = 0; q < 8; q += 4) {
      int p = q + u ^ g % 2 * 4;
      uint4 b[4];
      for (int j = 0; j < 4; ++j) b[j] = s[x + j * 8][p];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        uint4 h = s[y + i * 8][p], l = s[y + i * 8 + 64][p];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          float e[4] = {};
          mma3(e, h, l, b[j]);
          for (int v = 0; v < 4; ++v) c[i][j][v] += e[v];
        }
      }
    }
    __syncthreads();
  }
  C += (blockIdx.y * 128ll + t / 32 % 2 * 64 + g) * N + blockIdx.x * 128 + t / 64 * 32 + u * 2;
  for (int i = 0; i < 32; ++i)
    *(float2*)(C + (i / 8 * 16 + i % 2 * 8ll) * N + i / 2 % 4 * 8) = *(float2*)&c[i / 8][i / 2 % 4][i % 2 * 2];
}
extern "C" void card(void** p, const long long* n, cudaStream_t s) {
  gemm<<<dim3(n[1] / 128, n[0] / 128), 256, 0, s>>>((float*)p[0], (float*)p[1], (float*)p[2], n[1], n[2]);
}
