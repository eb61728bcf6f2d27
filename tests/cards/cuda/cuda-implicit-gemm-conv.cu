extern "C" void card(void** p, const long long* n, cudaStream_t s) {
  int N = n[0], C = n[1], H = n[2], W = n[3], O = n[4], R = n[5], P = n[6];
  int J = N * (H + 2 * P - R + 1) * (W + 2 * P - R + 1);
  conv<<<dim3((J + 63) / 64, (O + 63) / 64), 256, 0, s>>>((float*)p[0], (float*)p[1], (float*)p[2], N, C, H, W, O, R, P);
}
