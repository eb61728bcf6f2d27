"""The task of the corpus of streams: steps that leave most of a card idle, so calls can overlap."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(1) / 256)

    def forward(self, x):
        for _step in range(2):
            x = torch.cumsum(torch.tanh(x), dim=1) * self.weight
        return x


def get_inputs():
    return [torch.randn(16, 131072)]


def get_init_inputs():
    return []
