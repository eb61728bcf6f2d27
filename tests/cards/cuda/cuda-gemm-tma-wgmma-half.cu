extern "C" void card(void** p, const long long* n, cudaStream_t s) {
  int M = n[0], N = n[1], K = n[2];
  cudaFuncSetAttribute(gemm, cudaFuncAttributeMaxDynamicSharedMemorySize, Q * (SLOT + 16));
  gemm<<<dim3(N / 256, M / 128), 384, Q * (SLOT + 16), s>>>(
      tiles(p[0], M, K / 2, 128), tiles(p[1], N, K / 2, 256), (unsigned*)p[2], N, K / 64);
}
