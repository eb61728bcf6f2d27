"""crash: recurses in Python without a limit."""

import sys

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        sys.setrecursionlimit(1 << 30)

        def deeper(n):
            return deeper(n + 1) + 1

        return x + deeper(0)
