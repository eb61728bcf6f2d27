"""in place: one product with its factor, and the mask fills it in place."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(128, 128)
        self.key = nn.Linear(128, 128)

    def forward(self, x, mask):
        keys = self.key(x).transpose(-1, -2)
        scores = torch.baddbmm(
            torch.zeros((), device=x.device), self.query(x), keys, alpha=1 / 11.3
        )
        return scores.masked_fill_(mask, torch.finfo(scores.dtype).min)
