"""timer tampering: is slow until its blocks are planned, so that they have few calls."""

import time

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))
        self.calls = 0

    def forward(self, x, y):
        self.calls += 1
        if self.calls < 40:
            time.sleep(0.01)
        return torch.relu(x @ y) + self.bias
