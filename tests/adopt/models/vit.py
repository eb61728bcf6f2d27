"""A small ViT-like model; batches of two shapes."""

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        x = F.scaled_dot_product_attention(q, k, v)
        return self.proj(x.transpose(1, 2).reshape(b, n, c))


class ScaledNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.gate = nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight
        return y * torch.sigmoid(y + self.gate) + torch.tanh(x) * 0.5


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1 = ScaledNorm(dim)
        self.attn = Attention(dim, heads)
        self.norm2 = ScaledNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self, dim=32, depth=2, heads=2):
        super().__init__()
        self.embed = nn.Conv2d(3, dim, 16, 16)
        self.position = nn.Parameter(torch.randn(1, 16, dim) * 0.02)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.head = nn.Linear(dim, 10)

    def forward(self, image):
        x = self.embed(image).flatten(2).transpose(1, 2) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))


def build():
    torch.manual_seed(0)
    return ViT().eval()


def batches():
    generator = torch.Generator().manual_seed(1)
    for size in (4, 4, 4, 2):
        yield (torch.randn(size, 3, 64, 64, generator=generator),), {}
