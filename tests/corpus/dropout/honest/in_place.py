"""in place: the same steps in memory of its own, and the same random numbers."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 64) / 8)

    def forward(self, x):
        for _step in range(24):
            x = torch.mm(x, self.weight).tanh_()
        return torch.dropout(x, 0.1, True)
