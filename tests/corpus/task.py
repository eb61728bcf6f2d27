"""The task of the corpus: enough work that a cheat which skips it gains time."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x, y):
        return torch.relu(x @ y) + self.bias


def get_inputs():
    return [torch.randn(192, 192), torch.randn(192, 192)]


def get_init_inputs():
    return [192]
