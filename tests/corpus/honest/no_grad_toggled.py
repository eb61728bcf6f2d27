"""modes: switches gradients on and off around its work."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x, y):
        torch.set_grad_enabled(True)
        product = x.detach() @ y.detach()
        torch.set_grad_enabled(False)
        return torch.relu(product) + self.bias
