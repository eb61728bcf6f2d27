"""plain: the reference again."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        return torch.linalg.inv(a) @ torch.cumsum(torch.relu(b), 1)
