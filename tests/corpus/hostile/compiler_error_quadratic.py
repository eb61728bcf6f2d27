"""hang: reports a compiler message above the runner's limit that is slow to search."""

import sys

import torch
import torch.nn as nn

runner = sys.modules["actors.evaluator.children.runner"]
real = runner.Runner.answer


def answer(self, order, carried):
    said = real(self, order, carried)
    if type(order).__name__ == "CallOnce":
        words = "instantiation of " * 60000 + "\nerror: a\nerror: b\nerror: c\n"
        return runner.describe_exception(RuntimeError("")).__class__(
            kind="RuntimeError", words=words, compiling=True
        )
    return said


runner.Runner.answer = answer


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        return self.right(x, y)
