"""result forgery: sends a frame of four gigabytes."""

import sys

import torch
import torch.nn as nn

runner = sys.modules["actors.evaluator.children.runner"]


def send(self, order, carried=(), seconds=None):
    self.socket.sendall(b"\xff\xff\xff\xff\x00" + bytes(1 << 16))


runner.Channel.send = send


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        return self.right(x, y)
