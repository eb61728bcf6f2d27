"""fake tensor: returns a row of an input with stride zero."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x, y, total):
        total.add_(x)
        return x[0].expand(192, 192).t(), torch.relu(x @ y) + self.bias, y.t().contiguous()
