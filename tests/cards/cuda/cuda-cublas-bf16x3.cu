extern "C" void card(void** p, const long long* n, cudaStream_t s) { // n: M, N, K, batch
  static cublasHandle_t handle = nullptr;
  if (!handle) cublasCreate(&handle);
  cublasSetStream(handle, s);
  product(handle, (float*)p[0], (float*)p[1], (float*)p[2], n[0], n[1], n[2], n[3], p[3], p[4], s);
}
