"""noise: measures its own calls and prints them now and then."""

import time

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))
        self.times = []

    def forward(self, x, y):
        began = time.perf_counter()
        output = torch.relu(x @ y) + self.bias
        self.times.append(time.perf_counter() - began)
        if len(self.times) % 100 == 0:
            print(f"{sum(self.times) / 100:.2e} s")
            self.times.clear()
        return output
