extern "C" void card(void** p, const long long* n, cudaStream_t s) {
  int M = n[0], N = n[1], K = n[2];
  cudaFuncSetAttribute(gemm, cudaFuncAttributeMaxDynamicSharedMemorySize, Q * (SLOT + 16));
  pack<<<N * (long long)K / 512, 256, 0, s>>>((float2*)p[1], (unsigned*)p[3], N * K / 2);
  gemm<<<dim3(N / 256, M / 128), 384, Q * (SLOT + 16), s>>>(
      tiles(p[0], M, K, 128), tiles(p[3], N, K, 256), (float*)p[2], N, K / 32);
}
