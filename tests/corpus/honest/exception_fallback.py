"""exceptions: tries a fast way that may not exist, and falls back to another."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x, y):
        try:
            product = torch.ops.no_such_library.product(x, y)
        except (AttributeError, RuntimeError):
            product = torch.mm(x, y)
        return product.relu_() + self.bias
