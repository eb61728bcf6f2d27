"""lazy: adds a copy of its parameter that is renewed when its version changes."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))
        self.copied, self.version = None, -1

    def forward(self, x, y):
        if self.bias._version != self.version:
            self.copied, self.version = self.bias.detach().clone(), self.bias._version
        return torch.relu(x @ y) + self.copied
