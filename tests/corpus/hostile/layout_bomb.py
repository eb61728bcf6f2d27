"""hang: an output's layout whose size takes the judge minutes to multiply."""

import sys

import torch
import torch.nn as nn

layout = sys.modules["actors.evaluator.wire.layout"]
runner = sys.modules["actors.evaluator.children.runner"]
answer = runner.Runner.answer
HUGE = layout.Leaf(dtype="float32", shape=((1 << 63) - 1,) * 450_000)


def forged(self, order, carried):
    said = answer(self, order, carried)
    if type(said).__name__ == "Collected":
        said = type(said)(outputs=(HUGE, *said.outputs[1:]))
    return said


runner.Runner.answer = forged


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        return self.right(x, y)
