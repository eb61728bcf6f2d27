"""compile bomb: templates that grow without a limit."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""template <int D, long... N> struct A {
    static constexpr long value = A<D - 1, N..., N...>::value;
};
template <long... N> struct A<0, N...> { static constexpr long value = sizeof...(N); };
extern "C" long answer() { return A<30, 1>::value; }
"""

built = load_inline("hang_compiler", SOURCE, is_python_module=False, no_implicit_headers=True)
native = ctypes.CDLL(built)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        return torch.zeros_like(x)
