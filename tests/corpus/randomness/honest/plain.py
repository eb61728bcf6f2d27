"""random numbers: draws the same ones as the task, by other functions."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x, y):
        products = torch.mm(x, y).relu_().add_(self.bias)
        dropped = torch.dropout(products, 0.3, True)
        return dropped.add_(torch.rand(products.shape, device=x.device))
