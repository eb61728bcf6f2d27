"""in place: changes a copy of an input."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x, y):
        work = x.clone()
        work.copy_(work @ y)
        return work.clamp_(min=0).add_(self.bias)
