"""blocks: two passes over rows, with a generator."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x, y):
        parts = (torch.relu(x[i : i + 64] @ y) for i in range(0, x.shape[0], 64))
        return torch.cat([part + self.bias for part in parts])
