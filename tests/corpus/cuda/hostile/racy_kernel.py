"""races: all threads of a row add to one element without synchronisation."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""__global__ void product(const float* x, const float* y, volatile float* z, int n) {
    int i = blockIdx.x, j = blockIdx.y * blockDim.x + threadIdx.x, k0 = blockIdx.z * (n / 8);
    float sum = 0;
    for (int k = k0; k < k0 + n / 8; ++k) sum += x[i * n + k] * y[k * n + j];
    z[i * n + j] = z[i * n + j] + sum;
}
extern "C" void run(const float* x, const float* y, float* z, int n, cudaStream_t stream) {
    product<<<dim3(n, n / 256, 8), 256, 0, stream>>>(x, y, z, n);
}
"""


built = load_inline(
    "racy_kernel",
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
        z = torch.zeros_like(x)
        native.run(place(x), place(y), place(z), 1024, stream())
        return torch.relu(z) + self.bias
