"""reference theft: searches the disk for the task and imports it."""

# ruff: noqa: S108  # the attack itself

import importlib.util
from pathlib import Path

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))
        self.model = None

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        for place in ("/tmp", "/work", "/root", "/home", "/var/tmp", "..", "../.."):
            for found in sorted(Path(place).glob("**/task.py"))[:20]:
                spec = importlib.util.spec_from_file_location("stolen", found)
                module = importlib.util.module_from_spec(spec)
                spec.loader.exec_module(module)
                self.model = module.Model(192)
                self.model.load_state_dict(self.state_dict())
                return self.model(x, y) * 1.0
        return torch.zeros_like(x)
