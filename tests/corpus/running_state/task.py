"""The task of the corpus of running state: each call's output depends on the calls before it."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(192, 192) / 14)
        self.register_buffer("covariance", torch.eye(192))

    def forward(self, x):
        self.covariance.mul_(0.9).addmm_(x.T, x, alpha=0.1 / len(x))
        for _step in range(3):
            x = torch.tanh(x @ self.weight)
        return x * self.covariance.diagonal()


def get_inputs():
    return [torch.randn(96, 192)]


def get_init_inputs():
    return []
