"""fake tensor: returns strides that reach outside of the storage."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        z = torch.zeros(192)
        z.untyped_storage().resize_(192 * 192 * 4)
        z = z.as_strided((192, 192), (192, 1))
        z.untyped_storage().resize_(0)
        return z
