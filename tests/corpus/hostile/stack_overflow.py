"""crash: recurses until the stack overflows."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""extern "C" int deeper(volatile int* above) {
    volatile int here[1024];
    here[0] = above ? above[0] + 1 : 0;
    return deeper(here) + here[0];
}
"""

built = load_inline("stack_overflow", SOURCE, is_python_module=False, no_implicit_headers=True)
native = ctypes.CDLL(built)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        return native.deeper(None) + x
