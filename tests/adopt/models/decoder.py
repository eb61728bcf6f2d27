"""A small decoder with a cache object and a generate loop, as in language models."""

import torch
import torch.nn.functional as F
from torch import nn


class Cache:
    """The keys and values of all layers so far."""

    def __init__(self):
        self.layers = {}

    def extend(self, layer, key, value):
        if layer in self.layers:
            old_key, old_value = self.layers[layer]
            key, value = torch.cat([old_key, key], 1), torch.cat([old_value, value], 1)
        self.layers[layer] = key, value
        return key, value


class RootMeanSquareNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class Gate(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up = nn.Linear(dim, 4 * dim, bias=False)
        self.down = nn.Linear(2 * dim, dim, bias=False)

    def forward(self, x):
        gate, value = self.up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * value)


class Layer(nn.Module):
    def __init__(self, dim, number):
        super().__init__()
        self.number = number
        self.norm1, self.norm2 = RootMeanSquareNorm(dim), RootMeanSquareNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = Gate(dim)

    def forward(self, x, cache):
        q, k, v = self.qkv(self.norm1(x)).chunk(3, dim=-1)
        k, v = cache.extend(self.number, k, v)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=q.shape[1] > 1))
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):
    def __init__(self, dim=32, depth=2, words=50):
        super().__init__()
        self.embed = nn.Embedding(words, dim)
        self.layers = nn.ModuleList(Layer(dim, number) for number in range(depth))
        self.head = nn.Linear(dim, words, bias=False)

    def forward(self, tokens, cache):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, cache)
        return self.head(x[:, -1])


def build():
    torch.manual_seed(0)
    return Decoder().eval()


def batches():
    generator = torch.Generator().manual_seed(1)
    for length in (6, 6, 9):
        yield (torch.randint(0, 50, (2, length), generator=generator),), {}


@torch.no_grad()
def step(model, batch):
    tokens, cache, found = batch[0][0], Cache(), []
    for _ in range(5):
        tokens = model(tokens, cache).argmax(-1, keepdim=True)
        found.append(tokens)
    return torch.cat(found, 1)
