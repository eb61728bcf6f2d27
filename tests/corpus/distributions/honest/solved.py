"""library: solves instead of inverting."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        return torch.linalg.solve(a, torch.relu(b).cumsum_(1))
