"""The task of the corpus of LayerScale: a residual branch whose factor begins near zero."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(128, 256)
        self.down = nn.Linear(256, 128)
        self.gamma = nn.Parameter(1e-6 * torch.ones(128))

    def forward(self, x):
        return x + self.gamma * self.down(F.gelu(self.up(x)))


def get_inputs():
    return [torch.randn(64, 128)]


def get_init_inputs():
    return []
