"""names: has the words `cache`, `seed` and `time` in its comments."""

import time

import torch
import torch.nn as nn

# The cache of the processor is what matters here; time.perf_counter() is only for the log.
began = time.perf_counter()


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x, y):
        z = torch.mm(x, y)
        self.spent = time.perf_counter() - began
        return torch.threshold(z, 0.0, 0.0) + self.bias
