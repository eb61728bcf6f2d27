"""The task of the corpus of small steps that change their input, which is all that is returned."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 64) / 8)

    def forward(self, x):
        for _step in range(24):
            x.copy_(torch.tanh(x @ self.weight))
        return x


def get_inputs():
    return [torch.randn(1, 64)]


def get_init_inputs():
    return []
