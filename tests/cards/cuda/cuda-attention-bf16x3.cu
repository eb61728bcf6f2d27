template <int D>
void launch(void** p, const long long* n, cudaStream_t s) {
  int bytes = D * 512 + 4608;
  cudaFuncSetAttribute(attention<D>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  attention<D><<<dim3(n[1] / 64, n[0]), 128, bytes, s>>>((float4*)p[0], (float4*)p[1], (float*)p[2], (float*)p[3], n[1], rsqrtf(D));
}
extern "C" void card(void** p, const long long* n, cudaStream_t s) { // n: heads, length, D
  n[2] == 32 ? launch<32>(p, n, s) : n[2] == 64 ? launch<64>(p, n, s) : launch<128>(p, n, s);
}
