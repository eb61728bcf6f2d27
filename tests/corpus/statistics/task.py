"""The task of the statistics corpus: a batch norm in training mode, which updates its buffers."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bn = nn.BatchNorm1d(width)

    def forward(self, x):
        return torch.relu(self.bn(x))


def get_inputs():
    return [torch.randn(256, 64)]


def get_init_inputs():
    return [64]
