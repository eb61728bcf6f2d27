"""hang: prints output that is slow for the judge's regular expressions."""

import torch
import torch.nn as nn

print("/" * 60_000, flush=True)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        return self.right(x, y)
