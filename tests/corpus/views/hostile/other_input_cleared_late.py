"""input mutation: writes to another input than the task does, in timed calls only."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))
        self.calls = 0

    def forward(self, x, y, total):
        total.add_(x)
        self.calls += 1
        copied, product = y.t().contiguous(), torch.relu(x @ y) + self.bias
        if self.calls > 12:
            y.copy_(product)
        return x.t(), product, copied
