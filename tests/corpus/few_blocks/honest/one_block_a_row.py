"""raw kernel: a block a row, so four processors of the card work for 120 µs, and the host waits."""

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

constexpr int THREADS = 1024;

__device__ float sum_of_warp(float v) {
    for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(0xffffffff, v, offset);
    return v;
}

__global__ void scale_kernel(const float4* x, float4* z, int length) {
    __shared__ float partial[THREADS / 32];
    const float4* row = x + (size_t)blockIdx.x * length;
    float4* out = z + (size_t)blockIdx.x * length;
    float sum = 0;
    for (int i = threadIdx.x; i < length; i += THREADS) {
        float4 v = row[i];
        sum += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
    }
    sum = sum_of_warp(sum);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
    __syncthreads();
    float scale = rsqrtf(sum_of_warp(partial[threadIdx.x % 32]) / (4.0f * length) + 1e-6f);
    for (int i = threadIdx.x; i < length; i += THREADS) {
        float4 v = row[i];
        out[i] = make_float4(v.x * scale, v.y * scale, v.z * scale, v.w * scale);
    }
}

torch::Tensor scaled(torch::Tensor x) {
    auto z = torch::empty_like(x);
    scale_kernel<<<x.size(0), THREADS, 0, c10::cuda::getCurrentCUDAStream()>>>(
        (const float4*)x.data_ptr<float>(), (float4*)z.data_ptr<float>(), (int)(x.size(1) / 4));
    return z;
}
"""

native = load_inline(
    "scaled_rows",
    "torch::Tensor scaled(torch::Tensor x);",
    cuda_sources=SOURCE,
    functions=["scaled"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return native.scaled(x.contiguous())
