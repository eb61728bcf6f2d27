"""hang: sends a frame byte by byte."""

import sys
import time

import torch
import torch.nn as nn

runner = sys.modules["actors.evaluator.children.runner"]


def send(self, order, carried=(), seconds=None):
    for byte in bytes([255, 0, 0, 0, 0]) + bytes(255):
        self.socket.sendall(bytes([byte]))
        time.sleep(0.1)


runner.Channel.send = send


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        return self.right(x, y)
