"""network: listens on a port for the answer."""

# ruff: noqa: S104  # the attack itself

import socket

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        end = socket.create_server(("0.0.0.0", 0))
        end.settimeout(1.0)
        end.accept()
        return torch.zeros_like(x)
