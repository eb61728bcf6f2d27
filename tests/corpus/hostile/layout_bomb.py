"""hang: reports a layout whose size takes the judge minutes to compute."""

import sys

import torch
import torch.nn as nn

layout = sys.modules["actors.evaluator.ipc.layout_checks"]
tensor_addresses = sys.modules["actors.evaluator.children.runner"].tensor_addresses
real = tensor_addresses.output_addresses
HUGE = layout.Leaf(dtype="float32", shape=((1 << 63) - 1,) * 450_000)


def forged(outputs, *arena):
    told, said = real(outputs, *arena)
    return told, type(said)(layouts=(HUGE,), kinds=said.kinds, places=said.places)


tensor_addresses.output_addresses = forged


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        return self.right(x, y)
