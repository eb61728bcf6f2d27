extern "C" void card(void** p, const long long* n, cudaStream_t s) { // n: rows, length
  row_scan<<<n[0], 256, 0, s>>>((float4*)p[0], (float4*)p[1], n[1] / 4);
}
