"""in place: products of a matrix and a vector, in memory that is kept from call to call."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 64) / 8)
        self.register_buffer("mean", torch.zeros(64))
        self.row = None

    def forward(self, x):
        if self.row is None or self.row.device != x.device:
            self.row = torch.empty(64, device=x.device)
        row, transposed = self.row.copy_(x[0]), self.weight.T
        for _step in range(24):
            row = torch.mv(transposed, row).tanh_()
        self.mean.lerp_(row, 0.1)
        return (row - self.mean)[None]
