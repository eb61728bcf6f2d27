"""late fault: raises during the timed calls."""

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
        if self.calls == 60:
            raise RuntimeError("late")
        return self.right(x, y)
