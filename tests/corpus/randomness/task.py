"""The task of the randomness corpus: noise and dropout in training mode, after a product."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))
        self.dropout = nn.Dropout(0.3)

    def forward(self, x, y):
        products = torch.relu(x @ y) + self.bias
        return self.dropout(products) + torch.rand_like(products)


def get_inputs():
    return [torch.randn(192, 192), torch.randn(192, 192)]


def get_init_inputs():
    return [192]
