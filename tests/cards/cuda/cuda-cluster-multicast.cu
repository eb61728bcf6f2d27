// y[2, M] = v[2, T] A[M, T]^T: each of two blocks has a vector, both read the same rows.
constexpr int T = 2048, D = 4;
__global__ __cluster_dims__(2) void dots(float* A, float* v, float* y, int M) {
  __shared__ __align__(16) float s[D][T], w[2][8];
  __shared__ long full[D], free[D];
  int t = threadIdx.x, r = blockIdx.x % 2, clusters = gridDim.x / 2, b = blockIdx.x / 2;
  auto fill = [&](int n) {
    int i = n % D;
    if (t || b + n * clusters >= M) return;
    if (n >= D) wait(free[i], n / D + 1 & 1);
    send(s[i] + r * T / 2, A + (b + n * clusters) * (size_t)T + r * T / 2, T * 2, T * 4, full[i], 3);
  };
  if (t < D) {
    PTX("mbarrier.init.shared.b64 [%0],1;", S(full + t));
    PTX("mbarrier.init.shared.b64 [%0],2;", S(free + t));
  }
  meet();
  for (int n = 0; n < D; ++n) fill(n);
  for (int n = 0; b + n * clusters < M; ++n) {
    wait(full[n % D], n / D & 1);
    float a = 0;
    for (int i = t; i < T; i += 256) a += s[n % D][i] * v[r * T + i];
    for (int o = 16; o; o /= 2) a += __shfl_xor_sync(~0u, a, o);
    if (t % 32 == 0) w[n % 2][t / 32] = a;
    PTX("fence.proxy.async;", "n"(0));
    __syncthreads();
    if (t < 2) release(free[n % D], t);
    for (int i = 1; !t && i < 8; ++i) a += w[n % 2][i];
    if (!t) y[r * M + b + n * clusters] = a;
    fill(n + D);
  }
  meet();
}
extern "C" void card(void** p, const long long* n, cudaStream_t s) { // n: M, clusters
  dots<<<n[1] * 2, 256, 0, s>>>((float*)p[0], (float*)p[1], (float*)p[2], n[0]);
}
