"""Attention weights: scores scaled by 1/sqrt(d), an additive bias, softmax over the keys.

What self-attention does between its two matrix products, with a bias by relative position as in
T5 or ALiBi.  Sizes: 4 sequences, 8 heads, 128 queries, 256 keys.
"""

import math

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, heads: int, queries: int, keys: int, head_width: int) -> None:
        super().__init__()
        self.scale = 1.0 / math.sqrt(head_width)
        self.position = nn.Parameter(torch.randn(heads, queries, keys))

    def forward(self, scores: torch.Tensor) -> torch.Tensor:
        return torch.softmax(scores * self.scale + self.position, dim=-1)


def get_inputs():
    return [torch.randn(4, 8, 128, 256)]


def get_init_inputs():
    return [8, 128, 256, 64]
