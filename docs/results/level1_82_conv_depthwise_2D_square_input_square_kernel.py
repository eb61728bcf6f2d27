# level1_82_conv_depthwise_2D_square_input_square_kernel: the candidate of attempt 6, as its model wrote it (claude-by-mailbox).
# 716 µs a call; eager PyTorch: 2.57 ms, 3.59× (3.56–3.64) (first look), on NVIDIA H100 80GB HBM3.

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

TUNE = {'ROWS': 10, 'BULK': 1}

_CUDA = r'''
#include <torch/types.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_runtime.h>
#include <cstdint>

constexpr int H = 512, W = 512, O = 510, T = 256, R = ROWS;
constexpr int NS = O / R;
static_assert(O % R == 0, "rows");

__device__ __forceinline__ uint32_t sp(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }

__global__ __launch_bounds__(T)
void conv(const float* __restrict__ x, const float* __restrict__ wt, const float* __restrict__ bias,
          float* __restrict__ y, int C) {
  __shared__ __align__(128) float s[(R + 2) * W];
  __shared__ __align__(8) unsigned long long bar;
  const int t = threadIdx.x;
  const int plane = blockIdx.x / NS, strip = blockIdx.x - plane * NS;
  const int o0 = strip * R;
  const uint32_t mb = sp(&bar);
  if (t == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(mb) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(mb), "r"((R + 2) * W * 4) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 :: "r"(sp(s)), "l"(x + (size_t)plane * (H * W) + (size_t)o0 * W), "r"((R + 2) * W * 4), "r"(mb) : "memory");
  }
  const int c = plane % C;
  float k[9];
#pragma unroll
  for (int i = 0; i < 9; ++i) k[i] = __ldg(wt + c * 9 + i);
  const float b = bias ? __ldg(bias + c) : 0.f;
  __syncthreads();
  uint32_t ok;
  do {
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(ok) : "r"(mb), "r"(0) : "memory");
  } while (!ok);

  const int c0 = t * 2, c2 = min(c0 + 2, W - 2);       // thread 255 writes nothing
  float2 acc[R];
#pragma unroll
  for (int i = 0; i < R; ++i) acc[i] = make_float2(b, b);
#pragma unroll
  for (int i = 0; i < R + 2; ++i) {
    const float2 u = *(const float2*)(s + i * W + c0), v = *(const float2*)(s + i * W + c2);
#pragma unroll
    for (int r = 0; r < 3; ++r) {
      const int o = i - r;
      if (o >= 0 && o < R) {
        acc[o].x += k[r * 3] * u.x + k[r * 3 + 1] * u.y + k[r * 3 + 2] * v.x;
        acc[o].y += k[r * 3] * u.y + k[r * 3 + 1] * v.x + k[r * 3 + 2] * v.y;
      }
    }
  }
  __syncthreads();                                     // all have read the input tile
  const size_t g0 = (size_t)plane * (O * O) + (size_t)o0 * O;
  const int mis = (int)(g0 & 31);                      // even; s[i] becomes element g0 - mis + i of y
  static_assert(R * O + 32 <= (R + 2) * W, "overlay");
  if (t < T - 1) {
    float* q = s + mis + c0;
#pragma unroll
    for (int i = 0; i < R; ++i) *(float2*)(q + i * O) = acc[i];
  }
#if BULK
  asm volatile("fence.proxy.async;" ::: "memory");
#endif
  __syncthreads();
  float* g = y + (g0 - mis);
  const int end = mis + R * O, lo = (mis + 3) >> 2, hi = end >> 2;
  if (t == 32 && (mis & 3)) *(float2*)(g + mis) = *(const float2*)(s + mis);
  if (t == 64 && (end & 3)) *(float2*)(g + hi * 4) = *(const float2*)(s + hi * 4);
#if BULK
  if (t == 0) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                 :: "l"(g + lo * 4), "r"(sp(s + lo * 4)), "r"((hi - lo) * 16) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
#else
#pragma unroll 4
  for (int m = t; m < hi; m += T)
    if (m >= lo) __stcs((float4*)g + m, ((const float4*)s)[m]);
#endif
}

torch::Tensor dw3(torch::Tensor x, torch::Tensor w, torch::Tensor bias) {
  x = x.contiguous(); w = w.contiguous();
  TORCH_CHECK(x.dim() == 4 && x.size(2) == H && x.size(3) == W && w.numel() == x.size(1) * 9, "shape");
  long long planes = x.size(0) * x.size(1);
  auto y = torch::empty({x.size(0), x.size(1), O, O}, x.options());
  const float* bp = nullptr;
  if (bias.numel() > 0) { bias = bias.contiguous(); bp = bias.data_ptr<float>(); }
  conv<<<(unsigned)(planes * NS), T, 0, at::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), w.data_ptr<float>(), bp, y.data_ptr<float>(), (int)x.size(1));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}
'''

_ext = load_inline(
    name="dw3_bulk_oneshot",
    cpp_sources="torch::Tensor dw3(torch::Tensor x, torch::Tensor w, torch::Tensor bias);",
    cuda_sources=_CUDA,
    functions=["dw3"],
    extra_cuda_cflags=["-O3", "-DROWS=%d" % TUNE["ROWS"], "-DBULK=%d" % TUNE["BULK"]],
)


class ModelNew(nn.Module):
    def __init__(self, in_channels: int, kernel_size: int, stride: int = 1, padding: int = 0, bias: bool = False):
        super(ModelNew, self).__init__()
        self.conv2d = nn.Conv2d(in_channels, in_channels, kernel_size, stride=stride, padding=padding, groups=in_channels, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        c = self.conv2d
        if c.kernel_size == (3, 3) and c.stride == (1, 1) and c.padding == (0, 0) and tuple(x.shape[2:]) == (512, 512):
            b = c.bias if c.bias is not None else c.weight.new_empty(0)
            return _ext.dw3(x, c.weight, b)
        return c(x)
