"""A decoder with a cache of keys and values and a generate loop; any device and dtype."""

import os

import torch
import torch.nn.functional as F
from torch import nn

DEVICE = os.environ.get("ADOPT_DEVICE", "cpu")
DTYPE = getattr(torch, os.environ.get("ADOPT_DTYPE", "float32"))
WIDTH, DEPTH, WORDS = (1024, 4, 2000) if DEVICE == "cuda" else (64, 2, 100)
PROMPTS, NEW = ((2048, 2048, 1536), 3) if DEVICE == "cuda" else ((40, 40, 56), 4)


class RootMeanSquareNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, dim))

    def forward(self, x):
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return wide.to(x.dtype) * self.weight


class GatedUnit(nn.Module):
    def forward(self, gate, value):
        return gate * torch.sigmoid(gate) * value


class Layer(nn.Module):
    def __init__(self, dim, number):
        super().__init__()
        self.number = number
        self.norm1, self.norm2 = RootMeanSquareNorm(dim), RootMeanSquareNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.unit, self.down = (
            nn.Linear(dim, 8 * dim),
            GatedUnit(),
            nn.Linear(4 * dim, dim),
        )

    def forward(self, x, cache):
        b, n, c = x.shape
        q, k, v = (
            t.view(b, n, 4, c // 4).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        if self.number in cache:
            k, v = (torch.cat(pair, 2) for pair in zip(cache[self.number], (k, v), strict=True))
        cache[self.number] = k, v
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=n > 1)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, n, c))
        gate, value = self.up(self.norm2(x)).chunk(2, -1)
        return x + self.down(self.unit(gate.contiguous(), value.contiguous()))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Layer(WIDTH, number) for number in range(DEPTH))
        self.norm = RootMeanSquareNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, tokens, cache):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, cache)
        return self.head(self.norm(x)[:, -1])

    @torch.no_grad()
    def generate(self, tokens, count):
        cache, found = {}, []
        for _ in range(count):
            tokens = self(tokens, cache).argmax(-1, keepdim=True)
            found.append(tokens)
        return torch.cat(found, 1)


def build():
    torch.manual_seed(0)
    return Decoder().to(DEVICE, DTYPE).eval()


def batches():
    generator = torch.Generator().manual_seed(1)
    for length in PROMPTS:
        yield (torch.randint(0, WORDS, (8, length), generator=generator).to(DEVICE),), {}


def step(model, batch):
    return model.generate(batch[0][0], NEW)
