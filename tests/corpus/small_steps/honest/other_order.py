"""The same by other operations: other last digits."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, weights, gradients, average):
        average.lerp_(weights, 1e-4)
        weights.sub_(torch.where(gradients > 0, 1e-4, torch.where(gradients < 0, -1e-4, 0.0)))
        return gradients.square().sum().sqrt()
