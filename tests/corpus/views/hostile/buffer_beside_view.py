"""alias: returns one buffer at every call, beside a view of an input."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))
        self.work = None

    def forward(self, x, y, total):
        total.add_(x)
        if self.work is None:
            self.work = torch.empty_like(x)
        torch.mm(x, y, out=self.work).relu_().add_(self.bias)
        return x.t(), self.work, y.t().contiguous()
