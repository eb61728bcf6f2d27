"""Gated RMS normalisation, as at the end of a Mamba-2 or gated-attention block.

RMSNorm(x) * weight * SiLU(gate): two inputs, a parameter, one reduction along the features.
Sizes: 512 tokens, 2,048 features.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, features: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(features) + 0.5)
        self.eps = eps

    def forward(self, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        mean_square = x.pow(2).mean(dim=-1, keepdim=True)
        normed = x * torch.rsqrt(mean_square + self.eps)
        return normed * self.weight * F.silu(gate)


def get_inputs():
    return [torch.randn(512, 2048), torch.randn(512, 2048)]


def get_init_inputs():
    return [2048, 1e-6]
