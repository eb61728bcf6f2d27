"""The task of the distributions corpus: a symmetric matrix, and values that are never negative."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.linalg.inv(a) @ torch.cumsum(torch.relu(b), 1)


def get_inputs():
    m = torch.randn(96, 96)
    return [m @ m.T / 96 + torch.eye(96), torch.rand(96, 96)]


def get_init_inputs():
    return []
