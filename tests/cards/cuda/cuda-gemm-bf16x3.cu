// C = A B^T: 128 x 128 a block.
extern "C" void card(void** p, const long long* n, cudaStream_t s) {
  gemm<<<dim3(n[1] / 128, n[0] / 128), 256, 0, s>>>((float*)p[0], (float*)p[1], (float*)p[2], n[1], n[2]);
}
