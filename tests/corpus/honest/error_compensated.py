"""precision: a product in two halves of the mantissa, and the parts' sum."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x, y):
        high = x.bfloat16().float()
        low = x - high
        return torch.relu(low @ y + high @ y) + self.bias
