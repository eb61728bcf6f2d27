"""plain: the task's own steps, in place."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 64) / 8)

    def forward(self, x):
        for _step in range(24):
            x = torch.mm(x, self.weight).tanh_()
        return x.relu_()
