"""C++: at::Tensor in and out, through load_inline's own binding."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""#include <torch/extension.h>

torch::Tensor fused(torch::Tensor x, torch::Tensor y, torch::Tensor bias) {
    return torch::relu(torch::mm(x, y)).add_(bias);
}
"""
built = load_inline("native_tensor", SOURCE, functions=["fused"])


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        return built.fused(x, y, self.bias)
