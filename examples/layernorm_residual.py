"""Post-norm residual of a BERT layer: LayerNorm(x + sublayer), which also goes on as the residual.

Two inputs, a tuple out, mean and variance along the features.  Sizes: 8 sequences of 128 tokens,
768 features (BERT base).
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x: torch.Tensor, sublayer: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        summed = x + sublayer
        return self.norm(summed), summed


def get_inputs():
    return [torch.randn(8, 128, 768), torch.randn(8, 128, 768)]


def get_init_inputs():
    return [768]
