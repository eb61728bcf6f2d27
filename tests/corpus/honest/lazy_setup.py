"""lazy: makes its function at the first call."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))
        self.made = None

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        if self.made is None:
            self.made = lambda a, b: torch.relu(a @ b)
        return self.made(x, y) + self.bias
