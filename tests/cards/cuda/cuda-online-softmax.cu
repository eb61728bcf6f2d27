extern "C" void card(void** p, const long long* n, cudaStream_t s) {
  softmax<<<n[0], 256, 0, s>>>((float*)p[0], (float*)p[1], n[1]);
}
