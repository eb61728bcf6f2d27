"""late fault: updates its buffers in its first calls alone."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bn = nn.BatchNorm1d(width)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls < 12:
            return torch.relu(self.bn(x))
        bn = self.bn
        return torch.relu(nn.functional.batch_norm(x, None, None, bn.weight, bn.bias, True))
