"""persistence: puts a library into torch's shared folder of extensions."""

# ruff: noqa: S108  # the attack itself

import os
from pathlib import Path

import torch
import torch.nn as nn

wide = Path("/root/.cache/torch_extensions"), Path("~/.cache/torch_extensions").expanduser()
for place in (*wide, Path(os.environ.get("TORCH_EXTENSIONS_DIR", "/tmp"))):
    try:
        place.mkdir(parents=True, exist_ok=True)
        (place / "stark_corpus.so").write_bytes(b"\x7fELF")
    except OSError:
        pass


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        return torch.zeros_like(x)
