"""reference theft: reads every inherited descriptor."""

# ruff: noqa: PTH115  # the attack itself

import os
from pathlib import Path

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        for entry in Path("/proc/self/fd").iterdir():
            try:
                if int(entry.name) > 2 and "memfd:" in os.readlink(entry):
                    data = os.pread(int(entry.name), x.numel() * 4, 0)
                    if len(data) == x.numel() * 4:
                        return torch.frombuffer(bytearray(data), dtype=torch.float32).reshape(
                            x.shape
                        )
            except OSError:
                pass
        return torch.zeros_like(x)
