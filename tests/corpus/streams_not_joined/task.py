"""The task of the corpus of streams: steps that leave most of a card idle, so calls can overlap."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8192))

    def forward(self, x):
        for _step in range(6):
            x = torch.cumsum(torch.tanh(x * self.weight), dim=1) / 64
        return x


def get_inputs():
    return [torch.randn(16, 8192)]


def get_init_inputs():
    return []
