import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cpp_source = r"""
#include <torch/extension.h>
#include <algorithm>

torch::Tensor bias_hardswish(torch::Tensor x, torch::Tensor bias) {
    TORCH_CHECK(x.dim() == 2 && x.scalar_type() == torch::kFloat, "x: a float matrix");
    TORCH_CHECK(bias.scalar_type() == torch::kFloat, "bias: float");
    TORCH_CHECK(bias.numel() == x.size(1), "bias: one value per column");
    auto input = x.contiguous();
    auto offsets = bias.contiguous();
    const int64_t rows = input.size(0), columns = input.size(1);
    auto output = torch::empty_like(input);
    const float* source = input.data_ptr<float>();
    const float* shift = offsets.data_ptr<float>();
    float* target = output.data_ptr<float>();
    #pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < rows; ++row) {
        const float* __restrict__ in = source + row * columns;
        float* __restrict__ out = target + row * columns;
        #pragma omp simd
        for (int64_t c = 0; c < columns; ++c) {
            const float v = in[c] + shift[c];
            out[c] = v * std::min(std::max(v + 3.0f, 0.0f), 6.0f) * (1.0f / 6.0f);
        }
    }
    return output;
}
"""

fused = load_inline(
    name="bias_hardswish",
    cpp_sources=cpp_source,
    functions=["bias_hardswish"],
    extra_cflags=["-O3", "-march=native", "-fopenmp"],
    extra_ldflags=["-fopenmp"],
)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x):
        x = fused.bias_hardswish(x, self.bias)
        return x, x.mean(dim=1)
