"""plain: torch's own autograd through other operations."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.lin = nn.Linear(width, width)
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return torch.addmm(self.lin.bias, x, self.lin.weight.t()).tanh() * self.gain
