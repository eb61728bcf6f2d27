"""hang: never ends."""

import atexit

import torch
import torch.nn as nn


@atexit.register
def hang():
    while True:
        pass


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        return self.right(x, y)
