"""result forgery: sends a thousand descriptors with its answers."""

import array
import os
import socket
import sys

import torch
import torch.nn as nn

runner = sys.modules["actors.evaluator.children.runner"]
real = runner.Channel.send


def send(self, order, carried=(), seconds=None):
    ends = [os.dup(2) for _end in range(200)]
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", ends))]
    try:
        self.socket.sendmsg([b"\x00"], rights)
    except OSError:
        pass
    real(self, order, carried, seconds)


runner.Channel.send = send


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        return self.right(x, y)
