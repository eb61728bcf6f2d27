import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <vector>

// One block a row: the row is read once and written once; its sum stays on the chip.
__global__ void bias_hardswish_mean_kernel(
    const float* __restrict__ x, const float* __restrict__ bias, float* __restrict__ out,
    float* __restrict__ means, int64_t columns) {
    const int64_t start = static_cast<int64_t>(blockIdx.x) * columns;
    float sum = 0.0f;
    for (int64_t c = threadIdx.x; c < columns; c += blockDim.x) {
        const float v = x[start + c] + bias[c];
        const float y = v * fminf(fmaxf(v + 3.0f, 0.0f), 6.0f) * (1.0f / 6.0f);
        out[start + c] = y;
        sum += y;
    }
    for (int step = 16; step > 0; step >>= 1) sum += __shfl_down_sync(0xffffffffu, sum, step);
    __shared__ float partial[32];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    if (lane == 0) partial[warp] = sum;
    __syncthreads();
    if (warp == 0) {
        sum = lane < (blockDim.x >> 5) ? partial[lane] : 0.0f;
        for (int step = 16; step > 0; step >>= 1) sum += __shfl_down_sync(0xffffffffu, sum, step);
        if (lane == 0) means[blockIdx.x] = sum / static_cast<float>(columns);
    }
}

std::vector<torch::Tensor> bias_hardswish_mean(torch::Tensor x, torch::Tensor bias) {
    TORCH_CHECK(x.is_cuda() && x.dim() == 2, "x: a matrix on the GPU");
    TORCH_CHECK(x.scalar_type() == torch::kFloat, "x: float");
    TORCH_CHECK(bias.scalar_type() == torch::kFloat, "bias: float");
    TORCH_CHECK(bias.numel() == x.size(1), "bias: one value per column");
    auto input = x.contiguous();
    auto offsets = bias.contiguous();
    auto output = torch::empty_like(input);
    auto means = torch::empty({input.size(0)}, input.options());
    if (input.size(0) == 0) return {output, means};
    const dim3 grid(static_cast<unsigned>(input.size(0)));
    bias_hardswish_mean_kernel<<<grid, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        input.data_ptr<float>(), offsets.data_ptr<float>(), output.data_ptr<float>(),
        means.data_ptr<float>(), input.size(1));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {output, means};
}
"""

cpp_source = """
#include <torch/extension.h>
#include <vector>
std::vector<torch::Tensor> bias_hardswish_mean(torch::Tensor x, torch::Tensor bias);
"""

fused = load_inline(
    name="bias_hardswish_mean",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=["bias_hardswish_mean"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x):
        output, means = fused.bias_hardswish_mean(x, self.bias)
        return output, means
