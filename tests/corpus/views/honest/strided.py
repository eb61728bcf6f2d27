"""strides: a view of a permuted view of an input, and a transposed result."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x, y, total):
        total.add_(x)
        product = (torch.relu(y.t() @ x.t()) + self.bias[:, None]).t()
        return x.view(192, 2, 96).permute(1, 2, 0).reshape(192, 192), product, y.t().clone()
