"""timer tampering: uses all cores whenever it is not called."""

import os

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))
        for _ in range(2):
            if os.fork() == 0:
                while True:
                    pass

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        return self.right(x, y)
