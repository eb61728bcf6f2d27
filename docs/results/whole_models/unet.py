"""A denoising U-Net: 64 latents of 4 x 64 x 64."""

import os
import torch
DEVICE = os.environ.get("ADOPT_DEVICE", "cpu")
DTYPE = getattr(torch, os.environ.get("ADOPT_DTYPE", "float32"))
BIG = DEVICE == "cuda"
import math
import torch.nn.functional as F
from torch import nn
C = 128 if BIG else 16
N = (64, 64, 48) if BIG else (2, 2, 1)
SIDE = 64 if BIG else 16

class Swish(nn.Module):
    def forward(self, x): return x * torch.sigmoid(x)

class Residual(nn.Module):
    def __init__(self, cin, cout, t):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(8, cin), nn.GroupNorm(8, cout)
        self.act = Swish()
        self.conv1, self.conv2 = nn.Conv2d(cin, cout, 3, padding=1), nn.Conv2d(cout, cout, 3, padding=1)
        self.time = nn.Linear(t, 2 * cout)
        self.skip = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()
    def forward(self, x, t):
        h = self.conv1(self.act(self.norm1(x)))
        scale, shift = self.time(self.act(t))[:, :, None, None].chunk(2, 1)
        h = self.norm2(h) * (1 + scale) + shift
        return self.skip(x) + self.conv2(self.act(h))

class Attention(nn.Module):
    def __init__(self, c, heads=4):
        super().__init__()
        self.norm, self.qkv, self.out, self.heads = nn.GroupNorm(8, c), nn.Conv2d(c, 3 * c, 1), nn.Conv2d(c, c, 1), heads
    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(b, 3, self.heads, c // self.heads, h * w).transpose(-1, -2).unbind(1)
        return x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(-1, -2).reshape(b, c, h, w))

class Net(nn.Module):
    def __init__(self, c, t):
        super().__init__()
        self.t = t
        self.embed = nn.Sequential(nn.Linear(t, t), Swish(), nn.Linear(t, t))
        self.first = nn.Conv2d(4, c, 3, padding=1)
        sizes = [c, 2 * c, 2 * c]
        self.down = nn.ModuleList(nn.ModuleList([Residual(a, b, t), Residual(b, b, t)]) for a, b in zip([c] + sizes, sizes))
        self.pool = nn.ModuleList(nn.Conv2d(s, s, 3, 2, 1) for s in sizes[:-1])
        self.mid1, self.attend, self.mid2 = Residual(2 * c, 2 * c, t), Attention(2 * c), Residual(2 * c, 2 * c, t)
        self.up = nn.ModuleList([Residual(4 * c, 2 * c, t), Residual(4 * c, c, t), Residual(2 * c, c, t)])
        self.norm, self.act, self.last = nn.GroupNorm(8, c), Swish(), nn.Conv2d(c, 4, 3, padding=1)
    def forward(self, x, when):
        f = torch.exp(torch.linspace(0, -math.log(1e4), self.t // 2, device=x.device))
        a = when[:, None].float() * f
        t = self.embed(torch.cat([a.sin(), a.cos()], -1).to(x.dtype))
        h, skips = self.first(x), []
        for i, level in enumerate(self.down):
            for block in level: h = block(h, t)
            skips.append(h)
            if i < len(self.pool): h = self.pool[i](h)
        h = self.mid2(self.attend(self.mid1(h, t)), t)
        for i, block in enumerate(self.up):
            h = block(torch.cat([h, skips.pop()], 1), t)
            if i < 2: h = F.interpolate(h, scale_factor=2.0)
        return self.last(self.act(self.norm(h)))

def build():
    torch.manual_seed(0)
    return Net(C, 4 * C).eval().to(DEVICE, DTYPE)

def batches():
    g = torch.Generator().manual_seed(1)
    for n in N:
        yield (torch.randn(n, 4, SIDE, SIDE, generator=g).to(DEVICE, DTYPE), torch.randint(0, 1000, (n,), generator=g).to(DEVICE)), {}
