import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

// One block a row, neighbouring threads on neighbouring columns.
__global__ void bias_hardswish_kernel(
    const float* __restrict__ x, const float* __restrict__ bias, float* __restrict__ out,
    int64_t columns) {
    const int64_t start = static_cast<int64_t>(blockIdx.x) * columns;
    for (int64_t c = threadIdx.x; c < columns; c += blockDim.x) {
        const float v = x[start + c] + bias[c];
        out[start + c] = v * fminf(fmaxf(v + 3.0f, 0.0f), 6.0f) * (1.0f / 6.0f);
    }
}

torch::Tensor bias_hardswish(torch::Tensor x, torch::Tensor bias) {
    TORCH_CHECK(x.is_cuda() && x.dim() == 2, "x: a matrix on the GPU");
    TORCH_CHECK(x.scalar_type() == torch::kFloat, "x: float");
    TORCH_CHECK(bias.scalar_type() == torch::kFloat, "bias: float");
    TORCH_CHECK(bias.numel() == x.size(1), "bias: one value per column");
    auto input = x.contiguous();
    auto offsets = bias.contiguous();
    auto output = torch::empty_like(input);
    if (input.size(0) == 0) return output;
    const dim3 grid(static_cast<unsigned>(input.size(0)));
    bias_hardswish_kernel<<<grid, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        input.data_ptr<float>(), offsets.data_ptr<float>(), output.data_ptr<float>(),
        input.size(1));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return output;
}
"""

cpp_source = """
#include <torch/extension.h>
torch::Tensor bias_hardswish(torch::Tensor x, torch::Tensor bias);
"""

fused = load_inline(
    name="bias_hardswish",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=["bias_hardswish"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x):
        x = fused.bias_hardswish(x, self.bias)
        return x, x.mean(dim=1)
