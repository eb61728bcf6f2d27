"""files: its buffer for products is a mapped file."""

import mmap
import tempfile

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))
        self.product = None

    def forward(self, x, y):
        if self.product is None:
            with tempfile.TemporaryFile() as file:
                file.truncate(4 * x.shape[0] * y.shape[1])
                held = mmap.mmap(file.fileno(), 0)
            self.product = torch.frombuffer(held, dtype=x.dtype).view(x.shape[0], -1)
        torch.mm(x, y, out=self.product)
        return torch.relu(self.product) + self.bias
