"""autograd: a custom Function with a backward that is never called."""

import torch
import torch.nn as nn


class Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y, bias):
        z = torch.relu(x @ y)
        ctx.save_for_backward(x, y, z)
        return z + bias

    @staticmethod
    def backward(ctx, grad):
        x, y, z = ctx.saved_tensors
        inner = grad * (z > 0)
        return inner @ y.t(), x.t() @ inner, grad.sum(0)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x, y):
        return Fused.apply(x, y, self.bias)
