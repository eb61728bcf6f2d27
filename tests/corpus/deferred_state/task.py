"""The task of the corpus of deferred state: calls change much that no output of theirs reads."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("covariance", torch.eye(512))

    def forward(self, x):
        self.covariance.mul_(0.9).addmm_(x.T, x, alpha=0.1 / len(x))
        return torch.tanh(x)


def get_inputs():
    return [torch.randn(128, 512)]


def get_init_inputs():
    return []
