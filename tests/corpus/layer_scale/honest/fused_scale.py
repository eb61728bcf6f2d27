"""fused: the factor and the sum in one operation."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(128, 256)
        self.down = nn.Linear(256, 128)
        self.gamma = nn.Parameter(1e-6 * torch.ones(128))

    def forward(self, x):
        return torch.addcmul(x, self.gamma, self.down(F.gelu(self.up(x))))
