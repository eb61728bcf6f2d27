extern "C" void card(void** p, const long long* n, cudaStream_t s) {
  launch((float*)p[0], (float*)p[1], (float*)p[3], (float*)p[2], n[0], s);
}
