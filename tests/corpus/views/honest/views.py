"""views: as the task does it, by other operations."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x, y, total):
        total += x
        return (
            x.transpose(0, 1),
            torch.relu(x @ y) + self.bias,
            y.t().clone(memory_format=torch.contiguous_format),
        )
