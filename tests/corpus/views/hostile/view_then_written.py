"""alias: returns a view of an input and writes to it afterwards."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x, y, total):
        total.add_(x)
        result = x.t(), torch.relu(x @ y) + self.bias, y.t().contiguous()
        x.add_(1)
        return result
