"""result forgery: reports a huge and a negative output, so that addresses are out of range."""

import sys

import torch
import torch.nn as nn

layout = sys.modules["actors.evaluator.ipc.layout_checks"]
tensor_addresses = sys.modules["actors.evaluator.children.runner"].tensor_addresses
real = tensor_addresses.output_addresses
PLUS = layout.Leaf(dtype="float32", shape=(1 << 40,))
MINUS = layout.Leaf(dtype="float32", shape=(-(1 << 41),))


def forged(outputs, *arena):
    told, said = real(outputs, *arena)
    if len(outputs) > 8:
        kinds = b"\1\0" + said.kinds[2:-2] + b"\2\0"
        layouts = (said.layouts[0], PLUS, MINUS)
        said = type(said)(layouts=layouts, kinds=kinds, places=said.places)
    return told, said


tensor_addresses.output_addresses = forged


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        return self.right(x, y)
