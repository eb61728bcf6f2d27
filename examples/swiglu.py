"""SwiGLU, the feed-forward gate of Llama-like models: one projection, split, SiLU, product.

The matrix product stays with the library; bias, split, activation and product can follow in one
pass.  Sizes: 1,024 tokens, 64 features in, 2 x 768 out.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.project = nn.Linear(features, 2 * hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, value = self.project(x).chunk(2, dim=-1)
        return F.silu(gate) * value


def get_inputs():
    return [torch.randn(1024, 64)]


def get_init_inputs():
    return [64, 768]
