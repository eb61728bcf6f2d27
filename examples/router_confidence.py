"""Confidence of a classifier or an expert router: log-sum-exp, largest logit, energy by row.

Row reductions only, a tuple of small tensors out: the logits are read once instead of four times.
Sizes: 512 rows of 4,000 logits (not a multiple of any vector's width times a cache line).
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        cooled = logits / self.temperature
        log_total = torch.logsumexp(cooled, dim=-1)
        largest = torch.amax(cooled, dim=-1)
        return log_total, torch.exp(largest - log_total), cooled.square().mean(dim=-1)


def get_inputs():
    return [torch.randn(512, 4000)]


def get_init_inputs():
    return [0.7]
