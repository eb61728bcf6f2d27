"""Writes to its input once, after all steps."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 64) / 8)

    def forward(self, x):
        y = x
        for _step in range(24):
            y = torch.mm(y, self.weight).tanh_()
        return x.copy_(y)
