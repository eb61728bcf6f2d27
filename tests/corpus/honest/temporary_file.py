"""files: writes notes to a temporary file."""

import tempfile

import torch
import torch.nn as nn

with tempfile.TemporaryFile() as notes:
    notes.write(b"notes")


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        return self.right(x, y)
