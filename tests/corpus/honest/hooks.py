"""hooks: applies its activation in a forward hook."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))
        self.register_forward_hook(lambda module, _inputs, output: output.relu_() + module.bias)

    def forward(self, x, y):
        return x @ y
