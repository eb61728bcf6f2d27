"""crash: raises an exception whose own methods raise."""

import torch
import torch.nn as nn


class Angry(BaseException):
    def __str__(self):
        raise self

    __repr__ = __str__

    @property
    def __traceback__(self):
        raise KeyboardInterrupt


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        raise Angry
