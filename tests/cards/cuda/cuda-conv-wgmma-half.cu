// Sizes: N, C, D, H, W, O, T, R, S, P; 2-D: D = T = 1.  U: as many outputs as a strip's halo lets.
extern "C" void card(void** p, const long long* n, cudaStream_t s) {
  int N = n[0], C = n[1], D = n[2], H = n[3], W = n[4], O = n[5], T = n[6], R = n[7], S = n[8], P = n[9];
  int I = (D + (T > 1) * 2 * P - T) / S + 1, J = (H + 2 * P - R) / S + 1, K = (W + 2 * P - R) / S + 1;
  int A = (R - 1) / S, X = O > 64 ? 256 : 512, strips = 1, U = K, o = (O + 127) / 128;
  while (X + A * (U + A + 1) > L) U = (K + strips) / (strips + 1), ++strips;
  strips = (K + U - 1) / U;
  cudaFuncSetAttribute(conv, cudaFuncAttributeMaxDynamicSharedMemorySize, 128 * L);
  pack<<<o * 8 * ((C + 31) / 32) * T * R * R, 256, 0, s>>>((unsigned short*)p[1], (unsigned*)p[3], C, O, T * R * R);
  long long positions = (long long)N * I * strips * (J + A) * (U + A);
  conv<<<dim3((positions + X - 1) / X, o), 256, 128 * L, s>>>(
      (unsigned short*)p[0], (uint4*)p[3], (unsigned short*)p[2], N, C, D, H, W, O, T, R, S, P, I, J, K, U);
}
