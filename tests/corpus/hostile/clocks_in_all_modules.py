"""timer tampering: overwrites the clock functions in every module."""

import sys
import time

import torch
import torch.nn as nn

start = time.perf_counter()
for module in list(sys.modules.values()):
    for name in ("perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "time"):
        if callable(getattr(module, name, None)):
            setattr(module, name, lambda: start)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        z = self.right(x, y)
        return self.right(x, y) if z is None else z
