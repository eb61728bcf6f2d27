"""lazy: works on transposed copies of its inputs, made anew at each call."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x, y):
        columns = y.t().contiguous()
        return torch.relu(torch.nn.functional.linear(x, columns)) + self.bias
