extern "C" void card(void** p, const long long* n, cudaStream_t s) {
  int N = n[0], C = n[1], S = n[2], splits = n[3];
  stats<<<dim3(C, splits), 256, 0, s>>>((float*)p[0], (float2*)p[3], N, C, S);
  finish<<<(C + 127) / 128, 128, 0, s>>>((float*)p[0], (float2*)p[3], (float*)p[1], (float*)p[2], C, S, splits, (float)N * S);
}
