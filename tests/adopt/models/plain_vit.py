"""A ViT-like model as it is often written: GELU, norms and scales by hand; any device and dtype."""

import math
import os

import torch
import torch.nn.functional as F
from torch import nn

DEVICE = os.environ.get("ADOPT_DEVICE", "cpu")
DTYPE = getattr(torch, os.environ.get("ADOPT_DTYPE", "float32"))
WIDTH, DEPTH, SIDE = (384, 6, 160) if DEVICE == "cuda" else (64, 2, 64)


class HandGelu(nn.Module):
    def forward(self, x):
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


class HandNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, dim))

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        return centred * torch.rsqrt(centred.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


class LayerScale(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.gamma = nn.Parameter(torch.full((dim,), 0.1))

    def forward(self, x):
        return torch.clamp(x * self.gamma, -10.0, 10.0) + 0.0


class Soften(nn.Module):
    def forward(self, x):
        return x / (1 + x.abs()) * 2.0


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm1, self.norm2 = HandNorm(dim), HandNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.scale = LayerScale(dim)
        self.up, self.act, self.down = nn.Linear(dim, 4 * dim), HandGelu(), nn.Linear(4 * dim, dim)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, 4, c // 4).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, c)
        x = x + self.scale(self.proj(mixed))
        return x + self.down(self.act(self.up(self.norm2(x))))


class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Conv2d(3, WIDTH, 16, 16)
        self.blocks = nn.ModuleList(Block(WIDTH) for _ in range(DEPTH))
        self.soften = Soften()
        self.head = nn.Linear(WIDTH, 16)

    def forward(self, image):
        x = self.embed(image).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.head(self.soften(x).mean(1))


def build():
    torch.manual_seed(0)
    return ViT().to(DEVICE, DTYPE).eval()


def batches():
    generator = torch.Generator().manual_seed(1)
    sizes = (64, 64, 64, 16) if DEVICE == "cuda" else (8, 8, 8, 2)
    for size in sizes:
        yield (torch.randn(size, 3, SIDE, SIDE, generator=generator).to(DEVICE, DTYPE),), {}
