"""compile bomb: includes a file without an end."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""#include "/dev/zero"
"""

built = load_inline("include_endless", SOURCE, is_python_module=False, no_implicit_headers=True)
native = ctypes.CDLL(built)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        return torch.zeros_like(x)
