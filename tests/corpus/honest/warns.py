"""noise: warns, logs, and prints bytes that are not text."""

import logging
import sys
import warnings

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x, y):
        warnings.warn("slow path", stacklevel=1)
        logging.getLogger("candidate").error("level %d", 3)
        sys.stderr.buffer.write(b"\xff\xfe\x1b[31m")
        return torch.relu(x @ y) + self.bias
