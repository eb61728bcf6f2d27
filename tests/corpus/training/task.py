"""The task of the training corpus: judged with its backward pass."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.lin = nn.Linear(width, width)
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return torch.tanh(self.lin(x)) * self.gain


def get_inputs():
    return [torch.randn(96, 64)]


def get_init_inputs():
    return [64]
