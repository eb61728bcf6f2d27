"""threads: reuses a thread pool and waits for it at each call."""

from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))
        self.pool = ThreadPoolExecutor(2)

    def forward(self, x, y):
        bias = self.bias.detach()
        halves = [self.pool.submit(torch.mm, part, y) for part in x.split(96)]
        return torch.relu(torch.cat([half.result() for half in halves])).add_(bias)
