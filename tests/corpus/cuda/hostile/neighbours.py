"""out of bounds: writes before and after its output, into neighbouring allocations."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""__global__ void spill(float* z, long count, long more) {
    long at = blockIdx.x * (long)blockDim.x + threadIdx.x - more;
    if (at < count + more) z[at] = 1.0f;
}
extern "C" void run(float* z, long count, long more) {
    spill<<<(count + 2 * more + 255) / 256, 256>>>(z, count, more);
}
"""


built = load_inline(
    "neighbours",
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
        z = torch.empty_like(x)
        native.run(place(z), ctypes.c_long(z.numel()), ctypes.c_long(1 << 16))
        return z.copy_(self.right(x, y))
