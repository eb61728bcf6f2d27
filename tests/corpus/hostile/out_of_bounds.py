"""out of bounds: writes around its output."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""extern "C" void spill(float* z, long count) {
    for (long at = -4096; at < count + 4096; ++at) z[at] = 1.0f;
}
"""

built = load_inline("out_of_bounds", SOURCE, is_python_module=False, no_implicit_headers=True)
native = ctypes.CDLL(built)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        z = self.right(x, y)
        native.spill(ctypes.c_void_p(z.data_ptr()), ctypes.c_long(z.numel()))
        return z
