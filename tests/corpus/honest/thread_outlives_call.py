"""threads: a thread does unrelated work after a call returns."""

import threading

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))
        self.sums = []
        self.side = None

    def forward(self, x, y):
        z = torch.relu(x @ y) + self.bias
        if self.side is not None:
            self.side.join()
        copy = z.detach()[0].clone()
        self.side = threading.Thread(target=lambda: self.sums.append(float(copy[0])))
        self.side.start()
        del self.sums[:-4]
        return z
