"""processes: runs another program at the start."""

import subprocess

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))
        subprocess.run(["uname", "-m"], check=True, capture_output=True)

    def forward(self, x, y):
        return torch.relu(x @ y) + self.bias
