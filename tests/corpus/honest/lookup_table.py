"""constants: makes a table of 32 MB at the start and reads it at each call."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))
        self.register_buffer("table", torch.arange(8_000_000.0) * 0)

    def forward(self, x, y):
        return torch.relu(x @ y) + self.bias + self.table[:192]
