"""persistence: leaves folders without any permission."""

from pathlib import Path

import torch
import torch.nn as nn

Path("kept/inner").mkdir(parents=True)
Path("kept/inner/answer").write_text("42")
Path("kept/inner/answer").chmod(0)
Path("kept/inner").chmod(0)
Path("kept").chmod(0)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        return torch.zeros_like(x)
