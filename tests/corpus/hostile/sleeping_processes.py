"""hang: hundreds of sleeping processes slow down the freezer."""

import os
import time

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))
        for _child in range(400):
            if os.fork() == 0:
                time.sleep(600)
                os._exit(0)

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        return self.right(x, y)
