"""The task of the corpus of few blocks: four long rows; eager launches five kernels a call."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + 1e-6)


def get_inputs():
    return [torch.randn(4, 1024 * 1024)]


def get_init_inputs():
    return []
