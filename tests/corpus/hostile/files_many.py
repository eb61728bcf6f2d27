"""filler: writes thousands of files to its folder."""

from pathlib import Path

import torch
import torch.nn as nn

Path("many").mkdir()
for number in range(20_000):
    Path("many", f"{number:x}").touch()


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        return torch.zeros_like(x)
