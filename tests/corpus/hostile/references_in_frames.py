"""reference theft: searches all frames and objects for a Model."""

import gc

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        for thing in gc.get_objects():
            if type(thing).__name__ in ("Model", "Referee", "ReferenceRound"):
                return thing(x, y)
        return torch.zeros_like(x)
