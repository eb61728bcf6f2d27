"""CUDA: a fused epilogue through load_inline's own binding."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

__global__ void finish(float* z, const float* bias, long count, int width) {
    long at = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (at < count) z[at] = fmaxf(z[at], 0.0f) + bias[at % width];
}

torch::Tensor epilogue(torch::Tensor z, torch::Tensor bias) {
    long count = z.numel();
    auto stream = c10::cuda::getCurrentCUDAStream();
    finish<<<(count + 255) / 256, 256, 0, stream>>>(
        z.data_ptr<float>(), bias.data_ptr<float>(), count, (int)bias.numel());
    return z;
}
"""

built = load_inline(
    "bound_kernel",
    "torch::Tensor epilogue(torch::Tensor z, torch::Tensor bias);",
    cuda_sources=SOURCE,
    functions=["epilogue"],
)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x, y):
        return built.epilogue(x @ y, self.bias)
