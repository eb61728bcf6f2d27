"""compile bomb: templates that grow beyond all bounds."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""template <int N, int M> struct A {
    static constexpr long value = A<N - 1, M>::value + A<N - 1, M + (1 << N)>::value;
};
template <int M> struct A<0, M> { static constexpr long value = M; };
extern "C" long answer() { return A<26, 0>::value; }
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
