"""threads: a side thread that is joined."""

import threading

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        found = []
        side = threading.Thread(target=lambda: found.append(self.right(x.detach(), y)))
        with torch.no_grad():
            side.start()
        side.join()
        return found[0].detach()
