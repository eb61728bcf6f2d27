// C = A B^T: one warpgroup, a tile of 64 x 128, one slot.
__global__ __launch_bounds__(128) void gemm(
    const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, unsigned* C, int N, int K) {
  extern __shared__ __align__(1024) char slot[];
  unsigned s = (unsigned)__cvta_generic_to_shared(slot), f = s + 24576;
  int t = threadIdx.x, m = blockIdx.y * 64, n = blockIdx.x * 128;
  if (t == 0) {
    asm volatile("mbarrier.init.shared.b64 [%0],1;" :: "r"(f));
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
  float d[64];
  for (int k = 0; k < K / 64; ++k) {
    if (t == 0) {
      asm volatile("mbarrier.arrive.expect_tx.shared.b64 _,[%0],%1;" :: "r"(f), "r"(24576) : "memory");
      fetch(s, &a, k * 32, m, f);
      fetch(s + 8192, &b, k * 32, n, f);
    }
    asm volatile("{.reg .pred p; L: mbarrier.try_wait.parity.shared.b64 p,[%0],%1; @!p bra L;}" :: "r"(f), "r"(k % 2) : "memory");
    fence();
    for (int q = 0; q < 4; ++q) wg(d, tile(s) + q * 2, tile(s + 8192) + q * 2, k + q);
    done();
    __syncthreads();
  }
  int row = m + t / 32 * 16 + t % 32 / 4, col = n + t % 4 * 2;
  for (int i = 0; i < 64; i += 2)
    asm("{.reg .b32 r; cvt.rn.bf16x2.f32 r,%1,%2; st.global.b32 [%0],r;}"
      :: "l"(C + ((row + i / 2 % 2 * 8) * (size_t)N + col + i / 4 * 8) / 2), "f"(d[i + 1]), "f"(d[i]) : "memory");
}
extern "C" void card(void** p, const long long* n, cudaStream_t s) {
  CUtensorMap a = tensor_map((float*)p[0], n[0], n[2] / 2, 64), b = tensor_map((float*)p[1], n[1], n[2] / 2, 128);
  gemm<<<dim3(n[1] / 128, n[0] / 64), 128, 24584, s>>>(a, b, (unsigned*)p[2], n[1], n[2]);
}
