"""input mutation: clears an input beside the one that the task adds to."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x, y, total):
        total.add_(x)
        result = x.t(), torch.relu(x @ y) + self.bias, y.t().contiguous()
        y.zero_()
        return result
