extern "C" void card(void** p, const long long* n, cudaStream_t s) {
  sum_all<<<n[1], 256, 0, s>>>((float4*)p[0], (float*)p[2], (float*)p[1], n[0] / 4);
}
