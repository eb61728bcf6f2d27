"""alias: returns the product in the memory of the copy, which holds it already."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x, y, total):
        total.add_(x)
        copied = y.t().contiguous()
        return x.t(), copied.copy_(torch.relu(x @ y) + self.bias), copied
