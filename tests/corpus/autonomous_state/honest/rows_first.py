"""The product of the weights does not follow from the phase."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("phase", torch.rand(64) * 0.8 + 0.1)
        self.weight = nn.Parameter(torch.randn(192, 192) / 14)

    def forward(self, x):
        self.phase = 3.9 * self.phase * (1 - self.phase)
        rows = torch.arange(192, device=x.device, dtype=x.dtype)
        return (torch.outer(rows, self.phase.repeat(3)).sin_() @ (self.weight @ self.weight)).mul_(
            x
        )
