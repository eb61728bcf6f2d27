"""crash: throws through C, which ends the process."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""#include <stdexcept>
extern "C" void fail() noexcept { throw std::runtime_error("late"); }
"""

built = load_inline("aborts", SOURCE, is_python_module=False, no_implicit_headers=True)
native = ctypes.CDLL(built)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        native.fail()
        return x
