"""CUDA fault: reads four floats from a misaligned address."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""__global__ void fault(const char* z, float4* out) { *out = *(const float4*)(z + 4); }
extern "C" void run(const char* z, float4* out) { fault<<<1, 1>>>(z, out); }
"""


built = load_inline(
    "misaligned",
    "",
    cuda_sources=SOURCE,
    with_cuda=True,
    is_python_module=False,
    no_implicit_headers=True,
)
native = ctypes.CDLL(built)


def place(tensor):
    return ctypes.c_void_p(tensor.data_ptr())


def stream():
    return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        z = self.right(x, y)
        native.run(place(z), place(z))
        return z
