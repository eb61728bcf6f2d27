"""late fault: right in the check, zeros afterwards."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))
        self.calls = 0

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        self.calls += 1
        return self.right(x, y) if self.calls <= 12 else torch.zeros_like(x)
