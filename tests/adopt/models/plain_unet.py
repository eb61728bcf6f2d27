"""A denoising U-Net with time embedding, norms and activations by hand; any device and dtype."""

import os

import torch
from torch import nn

DEVICE = os.environ.get("ADOPT_DEVICE", "cpu")
DTYPE = getattr(torch, os.environ.get("ADOPT_DTYPE", "float32"))
WIDTH, SIZES, IMAGES = (128, (256, 256, 192), 8) if DEVICE == "cuda" else (16, (48, 48, 32), 2)


class Swish(nn.Module):
    def forward(self, x):
        return x * (1 / (1 + torch.exp(-x)))


class HandGroupNorm(nn.Module):
    def __init__(self, groups, width):
        super().__init__()
        self.groups = groups
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        b, c, h, w = x.shape
        grouped = x.view(b, self.groups, -1)
        mean, var = grouped.mean(-1, keepdim=True), grouped.var(-1, keepdim=True, correction=0)
        x = ((grouped - mean) / torch.sqrt(var + 1e-5)).view(b, c, h, w)
        return x * self.weight.view(1, c, 1, 1) + self.bias.view(1, c, 1, 1)


class Residual(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.norm1, self.norm2 = HandGroupNorm(8, inside), HandGroupNorm(8, outside)
        self.conv1 = nn.Conv2d(inside, outside, 3, padding=1)
        self.conv2 = nn.Conv2d(outside, outside, 3, padding=1)
        self.time = nn.Linear(32, outside)
        self.act = Swish()
        self.skip = nn.Conv2d(inside, outside, 1) if inside != outside else nn.Identity()

    def forward(self, x, t):
        h = self.conv1(self.act(self.norm1(x))) + self.time(t)[:, :, None, None]
        return self.skip(x) + self.conv2(self.act(self.norm2(h)))


class Clip(nn.Module):
    def forward(self, x):
        return torch.minimum(torch.maximum(x, -x * 0 - 3.0), x * 0 + 3.0)


class UNet(nn.Module):
    def __init__(self, width=WIDTH):
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.down = Residual(width, width)
        self.pool = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.middle = Residual(2 * width, 2 * width)
        self.widen = nn.Upsample(scale_factor=2)
        self.up = Residual(3 * width, width)
        self.clip = Clip()
        self.last = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x, t):
        t = torch.cat([torch.sin(t[:, None] * 0.1 * k) for k in range(1, 33)], 1).to(x.dtype)
        wide = self.down(self.first(x), t)
        deep = self.middle(self.pool(wide), t)
        return self.last(self.clip(self.up(torch.cat([self.widen(deep), wide], 1), t)))


def build():
    torch.manual_seed(0)
    return UNet().to(DEVICE, DTYPE).eval()


def batches():
    generator = torch.Generator().manual_seed(1)
    for size in SIZES:
        image = torch.randn(IMAGES, 3, size, size, generator=generator)
        yield (image.to(DEVICE, DTYPE), torch.arange(IMAGES).to(DEVICE).float()), {}


def step(model, batch):
    image, time = batch[0]
    with torch.no_grad():
        return image - 0.1 * model(image, time)
