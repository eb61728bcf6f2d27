"""statistics: a running variance of n elements instead of n - 1."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bn = nn.BatchNorm1d(width)

    def forward(self, x):
        bn = self.bn
        variance, mean = torch.var_mean(x, 0, correction=0)
        bn.running_mean.lerp_(mean, bn.momentum)
        bn.running_var.lerp_(variance, bn.momentum)
        bn.num_batches_tracked += 1
        scale = bn.weight * torch.rsqrt(variance + bn.eps)
        return torch.addcmul(bn.bias - mean * scale, x, scale).relu_()
