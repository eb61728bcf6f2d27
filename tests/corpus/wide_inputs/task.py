"""The task of the corpus of wide inputs: small steps beside a large input, part of it returns."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 64) / 8)

    def forward(self, x, y):
        for _step in range(24):
            x = torch.tanh(x @ self.weight)
        return x + y[:64], y[:64].view(8, 8)


def get_inputs():
    return [torch.randn(1, 64), torch.randn(60000)]


def get_init_inputs():
    return []
