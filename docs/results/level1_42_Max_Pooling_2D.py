# level1_42_Max_Pooling_2D: the candidate of attempt 8, as its model wrote it (claude-by-mailbox).
# 1.59 ms a call; eager PyTorch: 11.10 ms, 7.00× (6.90–7.04) (first look), on NVIDIA H100 80GB HBM3.

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

TUNE = {'ROWS': 12, 'STCS': 1}

_CUDA = r'''
#include <torch/types.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_runtime.h>

constexpr int H = 512, W = 512, O = 511, T = 128, R = ROWS;
constexpr int NS = (O + R - 1) / R;
constexpr int PITCH = 520;                  // column c of a row lies at c + 4; -1 and 512 are padding
constexpr int ITER = (R * O + 31 + T - 1) / T;

__global__ __launch_bounds__(T)
void pool(const float* __restrict__ x, float* __restrict__ y) {
  __shared__ __align__(16) float st[R * PITCH];
  const int t = threadIdx.x;
  const int plane = blockIdx.x / NS, strip = blockIdx.x - plane * NS;
  const int o0 = strip * R;
  const float* xp = x + (size_t)plane * (H * W) + t * 4;

  float4 a[R + 3];
#pragma unroll
  for (int i = 0; i < R + 3; ++i) {
    const int r = max(0, min(H - 1, o0 - 1 + i));
    a[i] = __ldg((const float4*)(xp + r * W));
  }
  // pairs of rows, in place
#pragma unroll
  for (int i = 0; i < R + 2; ++i) {
    a[i].x = fmaxf(a[i].x, a[i + 1].x);
    a[i].y = fmaxf(a[i].y, a[i + 1].y);
    a[i].z = fmaxf(a[i].z, a[i + 1].z);
    a[i].w = fmaxf(a[i].w, a[i + 1].w);
  }
#pragma unroll
  for (int i = 0; i < R; ++i) {
    float4 v;
    v.x = fmaxf(a[i].x, a[i + 2].x);
    v.y = fmaxf(a[i].y, a[i + 2].y);
    v.z = fmaxf(a[i].z, a[i + 2].z);
    v.w = fmaxf(a[i].w, a[i + 2].w);
    float* d = st + i * PITCH + 4 + t * 4;
    *(float4*)d = v;
    if (t == 0) d[-1] = v.x;
    if (t == T - 1) d[4] = v.w;
  }
  __syncthreads();

  const int n = min(R, O - o0) * O;
  const size_t g0 = (size_t)plane * (O * O) + (size_t)o0 * O;
  const int mis = (int)(g0 & 31);
  float* g = y + g0;
  int k = t - mis;                          // flat output index in the tile
  int c = k;                                // its column
  const float* s = st + 4 + k;              // its place: k + 9 * row + 4
#pragma unroll 4
  for (int m = 0; m < ITER; ++m) {
    if (k >= 0 && k < n) {
      const float v = fmaxf(fmaxf(s[-1], s[0]), fmaxf(s[1], s[2]));
#if STCS
      __stcs(g + k, v);
#else
      g[k] = v;
#endif
    }
    k += T;
    c += T;
    s += T;
    if (c >= O) { c -= O; s += PITCH - O; }
  }
}

torch::Tensor max_pool4(torch::Tensor x) {
  x = x.contiguous();
  TORCH_CHECK(x.dim() == 4 && x.size(2) == H && x.size(3) == W, "shape");
  long long planes = x.size(0) * x.size(1);
  auto y = torch::empty({x.size(0), x.size(1), O, O}, x.options());
  pool<<<(unsigned)(planes * NS), T, 0, at::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), y.data_ptr<float>());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}
'''

_ext = load_inline(
    name="max_pool4_oneshot",
    cpp_sources="torch::Tensor max_pool4(torch::Tensor x);",
    cuda_sources=_CUDA,
    functions=["max_pool4"],
    extra_cuda_cflags=["-O3", "-DSTCS=%d" % TUNE["STCS"], "-DROWS=%d" % TUNE["ROWS"]],
)


class ModelNew(nn.Module):
    def __init__(self, kernel_size: int, stride: int, padding: int, dilation: int):
        super(ModelNew, self).__init__()
        self.maxpool = nn.MaxPool2d(kernel_size=kernel_size, stride=stride, padding=padding, dilation=dilation)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        m = self.maxpool
        if (m.kernel_size, m.stride, m.padding, m.dilation) == (4, 1, 1, 1) and tuple(x.shape[2:]) == (512, 512):
            return _ext.max_pool4(x)
        return m(x)
