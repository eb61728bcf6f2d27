"""alias: returns a view of an earlier call's input."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))
        self.earlier = None

    def forward(self, x, y, total):
        total.add_(x)
        earlier, self.earlier = self.earlier, x
        view = x if earlier is None else earlier
        return view.t(), torch.relu(x @ y) + self.bias, y.t().contiguous()
