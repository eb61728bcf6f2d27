"""deferred work: computes on a side stream without synchronisation."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))
        self.side = torch.cuda.Stream()

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        z = torch.empty_like(x)
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            torch.cuda._sleep(1 << 22)
            z.copy_(self.right(x, y))
        return z
