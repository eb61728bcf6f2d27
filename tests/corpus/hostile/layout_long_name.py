"""hang: reports a device name of megabytes, which a verdict would quote."""

import sys

import torch
import torch.nn as nn

layout = sys.modules["actors.evaluator.ipc.layout_checks"]
tensor_addresses = sys.modules["actors.evaluator.children.runner"].tensor_addresses
real = tensor_addresses.output_addresses
LEAF = layout.Leaf(dtype="float32", shape=(192, 192), device="\33[2J/" * 700_000)


def forged(outputs, *arena):
    told, said = real(outputs, *arena)
    return told, type(said)(layouts=(LEAF,), kinds=said.kinds, places=said.places)


tensor_addresses.output_addresses = forged


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        return self.right(x, y)
