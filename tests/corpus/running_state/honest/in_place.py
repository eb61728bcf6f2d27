"""in place: the same with fewer temporary tensors."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(192, 192) / 14)
        self.register_buffer("covariance", torch.eye(192))

    def forward(self, x):
        torch.addmm(self.covariance, x.T, x, beta=0.9, alpha=0.1 / len(x), out=self.covariance)
        for _step in range(3):
            x = torch.mm(x, self.weight).tanh_()
        return x.mul_(self.covariance.diagonal())
