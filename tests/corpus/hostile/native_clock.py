"""timer tampering: replaces the C library's clock_gettime with a slow clock."""

import ctypes
import os

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

extern "C" int clock_gettime(clockid_t which, timespec* now) {
    syscall(SYS_clock_gettime, which, now);
    now->tv_sec /= 100;
    now->tv_nsec /= 100;
    return 0;
}
"""
os.environ["LD_PRELOAD"] = "clock.so"

built = load_inline("native_clock", SOURCE, is_python_module=False, no_implicit_headers=True)
native = ctypes.CDLL(built)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        ctypes.CDLL(built, mode=ctypes.RTLD_GLOBAL)
        return self.right(x, y)
