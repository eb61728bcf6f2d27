"""late fault: a kernel on another stream faults long after the return."""

import ctypes
import sys

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""__global__ void fault(long long cycles) {
    long long began = clock64();
    while (clock64() - began < cycles) {
    }
    *(volatile int*)nullptr = 1;
}
extern "C" void run() {
    cudaStream_t side;
    cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);
    fault<<<1, 1, 0, side>>>(2000000000LL);
}
"""


built = load_inline(
    "late_fault",
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


runner = sys.modules["actors.evaluator.children.runner"]
runner.Runner._synchronize = lambda self: torch.cuda.current_stream().synchronize()


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))
        self.calls = 0

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        self.calls += 1
        if self.calls == 10:
            native.run()
        return self.right(x, y)
