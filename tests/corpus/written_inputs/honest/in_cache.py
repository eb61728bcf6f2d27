"""in place: one product with its bias, written to the cache."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.key = nn.Linear(64, 64)

    def forward(self, x, cache):
        cache[:, 5] = torch.addmm(self.key.bias, x[:, 0], self.key.weight.t())
        return torch.softmax(x @ cache.transpose(1, 2), -1) @ cache
