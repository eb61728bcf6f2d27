"""Blocks that differ in a number, so that each is alone of its kind; one is given a shape."""

import torch
from torch import nn


class Bend(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * torch.sigmoid(x) + 0.5 * x * torch.cos(x)


class Block(nn.Module):
    def __init__(self, width, rate):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, width))
        self.bend, self.drop = Bend(), nn.Dropout(rate)

    def forward(self, x, kept=None):
        x = torch.sin(x * self.weight) - torch.exp(-x * x) + torch.cos(x) * torch.tanh(x)
        x = self.drop(self.bend(x))
        if kept is not None:
            kept.append(x)  # a kernel can't do this
        return x


class Tiles(nn.Module):
    def forward(self, x, shape):
        return torch.sin(x).reshape(shape) * torch.cos(x) + x


class Unlike(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width, rate / 10) for rate in range(3))
        self.tiles = Tiles()

    def forward(self, x):
        for number, block in enumerate(self.blocks):
            x = block(x, [] if number else None)
        return self.tiles(x, x.shape)


def build():
    torch.manual_seed(0)
    return Unlike().eval()


def batches():
    generator = torch.Generator().manual_seed(1)
    for _ in range(3):
        yield (torch.randn(256, 64, generator=generator),), {}
