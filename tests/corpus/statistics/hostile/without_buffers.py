"""statistics: has no buffers for them."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bn = nn.Module()
        self.bn.weight = nn.Parameter(torch.ones(width))
        self.bn.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        return torch.relu(
            nn.functional.batch_norm(x, None, None, self.bn.weight, self.bn.bias, True)
        )
