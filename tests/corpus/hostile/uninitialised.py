"""stale memory: never writes the last block of rows."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        z = torch.empty_like(x)
        z[:191] = self.right(x[:191], y)
        return z
