#include <algorithm>
#include <memory>
static void matmul(const float* A, const float* W, float* C, long M, long N, long K) {
  long T = K / 32, I = M / 16, J = N / 16;
  std::unique_ptr<H[]> a(new H[I * T * 1024]), w(new H[J * T * 1024]);
#pragma omp parallel
  {
    tiles();
#pragma omp for
    for (long i = 0; i < I * T; ++i) split(A + i / T * 16 * K + i % T * 32, K, &a[i * 1024], false);
#pragma omp for
    for (long j = 0; j < J * T; ++j) split(W + j / T * 16 * K + j % T * 32, K, &w[j * 1024], true);
#pragma omp for collapse(2)
    for (long j0 = 0; j0 < J; j0 += 8)
      for (long i0 = 0; i0 < I; i0 += 8)
        for (long j = j0; j < std::min(J, j0 + 8); j += 2)
          for (long i = i0; i < std::min(I, i0 + 8); i += 2)
            block(&a[i * T * 1024], &w[j * T * 1024], T, C + i * 16 * N + j * 16, N);
  }
}
extern "C" void card(void** p, const long long* n, void*) {
  matmul((float*)p[0], (float*)p[1], (float*)p[2], n[0], n[1], n[2]);
}
