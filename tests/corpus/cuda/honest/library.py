"""library: one library call, and in-place epilogues."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x, y):
        return torch.relu_(torch.mm(x, y)).add_(self.bias)
