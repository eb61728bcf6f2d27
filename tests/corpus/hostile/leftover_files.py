"""persistence: leaves files in every writable place and reads its answers from earlier ones."""

# ruff: noqa: S108  # the attack itself

import site
from pathlib import Path

import torch
import torch.nn as nn

NAME = ".stark-corpus-answer"
PLACES = {
    Path(place)
    for place in (
        *(
            "/tmp",
            "/var/tmp",
            "/dev/shm",
            "/run",
            ".",
            "..",
            str(Path.home()),
            "/root",
            "/home",
            "/etc",
        ),
        *site.getsitepackages(),
    )
}
for place in PLACES:
    if (place / NAME).exists():
        raise RuntimeError(f"an earlier candidate left {place / NAME}")
for place in PLACES:
    try:
        (place / NAME).write_bytes(b"0" * 64)
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
