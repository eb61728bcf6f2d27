"""compile bomb: an initialised array of gigabytes."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""extern "C" char filled[1L << 33] = {1};
"""

built = load_inline("object_huge", SOURCE, is_python_module=False, no_implicit_headers=True)
native = ctypes.CDLL(built)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        return torch.zeros_like(x)
