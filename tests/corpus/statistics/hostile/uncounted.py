"""statistics: the means and variances, without the number of batches."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bn = nn.BatchNorm1d(width)

    def forward(self, x):
        bn = self.bn
        return torch.relu(
            nn.functional.batch_norm(
                x, bn.running_mean, bn.running_var, bn.weight, bn.bias, True, bn.momentum
            )
        )
