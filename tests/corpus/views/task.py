"""The task of the views corpus: a view, a product, a copy, and an input that it adds to."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x, y, total):
        total.add_(x)
        return x.t(), torch.relu(x @ y) + self.bias, y.t().contiguous()


def get_inputs():
    return [torch.randn(192, 192), torch.randn(192, 192), torch.randn(192, 192)]


def get_init_inputs():
    return [192]
