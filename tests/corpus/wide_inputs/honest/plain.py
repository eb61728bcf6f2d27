"""plain: the task's own module."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 64) / 8)

    def forward(self, x, y):
        for _step in range(24):
            x = torch.tanh(x @ self.weight)
        return x + y[:64], y[:64].view(8, 8)
