"""plain: the same in one operation less."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("covariance", torch.eye(512))

    def forward(self, x):
        self.covariance.addmm_(x.T, x, beta=0.9, alpha=0.1 / len(x))
        return torch.tanh(x)
