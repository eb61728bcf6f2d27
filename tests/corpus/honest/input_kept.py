"""buffers: keeps its last inputs, and does not use them."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))
        self.seen = []

    def forward(self, x, y):
        self.seen = [*self.seen[-8:], (x, y)]
        return torch.relu(x @ y) + self.bias
