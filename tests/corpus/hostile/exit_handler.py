"""result forgery: overwrites its results in an exit handler."""

import atexit
import os

import torch
import torch.nn as nn


@atexit.register
def forge():
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, b"\x00" * 64)
        except OSError:
            pass


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        return torch.zeros_like(x)
