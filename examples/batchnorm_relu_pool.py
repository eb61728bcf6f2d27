"""Batch norm in inference, ReLU, 2x2 max pool: what follows a convolution in a VGG or ResNet stem.

In evaluation mode the norm is a scale and a shift by channel, so that all three are one pass over
the image.  Sizes: 8 images, 32 channels, 64 x 64.
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU()
        self.pool = nn.MaxPool2d(2)
        self.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.pool(self.relu(self.norm(x)))


def get_inputs():
    return [torch.randn(8, 32, 64, 64)]


def get_init_inputs():
    return [32]
