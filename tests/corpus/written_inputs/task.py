"""The task of the corpus of written inputs: attention over a cache that its caller owns."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.key = nn.Linear(64, 64)

    def forward(self, x, cache):
        cache[:, 5:6] = self.key(x)
        return torch.softmax(x @ cache.transpose(1, 2), -1) @ cache


def get_inputs():
    return [torch.randn(8, 1, 64), torch.randn(8, 256, 64)]


def get_init_inputs():
    return []
