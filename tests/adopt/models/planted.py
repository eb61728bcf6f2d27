"""A model whose parts repeat their work; each part gets another kind of winner in the tests."""

import torch
from torch import nn

REPEATS = 16


class Repeated(nn.Module):
    """tanh of a scaled input, computed several times."""

    def __init__(self, width, shift):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, width))
        self.shift = shift  # makes the parts different tasks

    def forward(self, x):
        total = torch.zeros_like(x)
        for _ in range(REPEATS):
            total = total + torch.tanh(x * self.weight)
        return total / REPEATS + self.shift


class Fast(Repeated): ...


class Idle(Repeated): ...


class Slow(Repeated): ...


class Wrong(Repeated): ...


class Breaking(Repeated): ...


class Planted(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.fast = nn.ModuleList(Fast(width, 0.1) for _ in range(4))
        self.idle, self.slow = Idle(width, 0.2), Slow(width, 0.3)
        self.wrong, self.breaking = Wrong(width, 0.4), Breaking(width, 0.5)
        self.head = nn.Linear(width, 4)

    def forward(self, x):
        for part in (*self.fast, self.idle, self.slow, self.wrong, self.breaking):
            x = part(x)
        return self.head(x)


def build():
    torch.manual_seed(0)
    return Planted().eval()


def batches():
    generator = torch.Generator().manual_seed(1)
    for rows in (512, 512, 512, 128):
        yield (torch.randn(rows, 64, generator=generator),), {}
