"""The task of the masked corpus: scores of attention, where a mask fills in the lowest number."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(128, 128)
        self.key = nn.Linear(128, 128)

    def forward(self, x, mask):
        scores = self.query(x) @ self.key(x).transpose(-1, -2) / 11.3
        return scores.masked_fill(mask, torch.finfo(scores.dtype).min)


def get_inputs():
    return [torch.randn(2, 192, 128), torch.rand(2, 192, 192) < 0.3]


def get_init_inputs():
    return []
