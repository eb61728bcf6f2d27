"""races: threads add to the same elements without synchronisation."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""#include <thread>
#include <vector>

extern "C" void product(const float* x, const float* y, volatile float* z, long n) {
    std::vector<std::thread> threads;
    for (long part = 0; part < 4; ++part) {
        threads.emplace_back([=] {
            for (long k = part; k < n; k += 4)
                for (long i = 0; i < n; ++i)
                    for (long j = 0; j < n; ++j)
                        z[i * n + j] = z[i * n + j] + x[i * n + k] * y[k * n + j];
        });
    }
    for (auto& one : threads) one.join();
}
"""

built = load_inline("racy", SOURCE, is_python_module=False, no_implicit_headers=True)
native = ctypes.CDLL(built)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        z = torch.zeros_like(x)
        places = [ctypes.c_void_p(t.data_ptr()) for t in (x, y, z)]
        native.product(*places, ctypes.c_long(192))
        return torch.relu(z) + self.bias
