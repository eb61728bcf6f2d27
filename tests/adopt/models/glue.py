"""A model whose residuals, norms, gates and scales are in the forward of its blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional


class GluedBlock(nn.Module):
    """Two products, and behind each of them a residual, a norm and a gate."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.scale1 = nn.Parameter(torch.rand(dim))
        self.scale2 = nn.Parameter(torch.rand(dim))
        self.register_parameter("shift", None)

    def forward(self, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        x = x if self.shift is None else x + self.shift
        x = self.norm1(x + self.first(x) * self.scale1) * torch.sigmoid(gate)
        return self.norm2(x + self.second(x) * self.scale2) * torch.sigmoid(gate)


class Branching(nn.Module):
    """It decides by values, so that no trace of it is right."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.inner = nn.Linear(dim, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.inner(x).abs() + 1.0
        return x if x.max() > 1e9 else x.log() * 0.5


class Network(nn.Module):
    """Two blocks, a module that branches, and work after them in the model's own forward."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([GluedBlock(64), GluedBlock(64)])
        self.head, self.last = nn.Linear(64, 32), Branching(32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate = x.roll(1, -1)
        for layer in self.layers:
            x = layer(x, gate)
        scores = self.last(self.head(x))
        return functional.softmax(scores * 0.5, dim=-1) + scores.abs().sqrt()


def build() -> nn.Module:
    """Return the model."""
    torch.manual_seed(0)
    return Network().eval()


def batches() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Yield batches of two sizes."""
    torch.manual_seed(1)
    for size in (512, 512, 384):
        yield (torch.randn(size, 64),), {}
