"""reference theft: tries to derive the inputs from the random generator's state."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        state = torch.get_rng_state()
        a, b = torch.randn(192, 192), torch.randn(192, 192)
        torch.set_rng_state(state)
        return self.right(a, b)
