"""hang: a kernel that never ends."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""__global__ void forever(volatile int* stop) {
    while (!*stop) {
    }
}
extern "C" void run(int* stop) { forever<<<1, 1>>>(stop); }
"""


built = load_inline(
    "infinite_kernel",
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
        stop = torch.zeros(1, dtype=torch.int32, device="cuda")
        native.run(place(stop))
        return self.right(x, y)
