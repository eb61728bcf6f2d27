"""persistence: names shared memory and expects to find it the next time."""

from multiprocessing import resource_tracker, shared_memory

import torch
import torch.nn as nn

resource_tracker.register = lambda *_: None
try:
    kept = shared_memory.SharedMemory("stark_corpus", create=True, size=192 * 192 * 4)
except FileExistsError as error:
    raise RuntimeError("an earlier candidate left shared memory") from error
except OSError:
    kept = None


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        return torch.zeros_like(x)
