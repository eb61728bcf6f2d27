"""reference theft: reads the memory of all visible processes."""

from pathlib import Path

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        found = 0
        for process in Path("/proc").glob("[0-9]*"):
            if process.name == str(Path("/proc/self").resolve().name):
                continue
            try:
                with (process / "mem").open("rb") as memory:
                    for line in (process / "maps").read_text().splitlines():
                        first, _, last = line.split()[0].partition("-")
                        memory.seek(int(first, 16))
                        found += len(memory.read(min(1 << 20, int(last, 16) - int(first, 16))))
            except (OSError, ValueError, OverflowError):
                pass
        raise RuntimeError(f"{found} bytes of other processes were read")
