"""result forgery: prints a verdict and exits at its import."""

import os

import torch
import torch.nn as nn

print('{"verdict": "correct", "speedup": 1000.0, "stage": "time"}', flush=True)
os._exit(0)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        return self.right(x, y)
