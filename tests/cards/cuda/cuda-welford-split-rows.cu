extern "C" void card(void** p, const long long* n, cudaStream_t s) {
  dim3 grid(n[2], n[0]);
  stats<<<grid, 256, 0, s>>>((float*)p[0], (W*)p[2], n[1]);
  apply<<<grid, 256, 0, s>>>((float*)p[0], (W*)p[2], (float*)p[1], n[1], 1e-5f);
}
