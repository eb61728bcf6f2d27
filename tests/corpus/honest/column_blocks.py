"""strides: a view of a larger fresh buffer."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x, y):
        held = x.new_empty(x.shape[0], 2 * y.shape[1])
        output = held[:, : y.shape[1]]
        output.copy_(torch.relu(x @ y) + self.bias)
        return output
