"""workspace: reuses a workspace and recomputes it at each call."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))
        self.work = torch.empty(width, width)

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        torch.mm(x, y, out=self.work)
        return torch.relu(self.work) + self.bias
