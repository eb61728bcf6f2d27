"""views: returns a copy where the task returns a view."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x, y, total):
        total.copy_(total + x)
        return x.t().contiguous(), torch.relu(x @ y) + self.bias, y.t().contiguous()
