"""in place: the mean is moved in one operation."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 64) / 8)
        self.register_buffer("mean", torch.zeros(64))

    def forward(self, x):
        for _step in range(24):
            x = torch.tanh(x @ self.weight)
        self.mean.lerp_(x[0], 0.1)
        return x - self.mean
