"""The task of the corpus of a state that follows from no input: a phase decides a costly table."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("phase", torch.rand(64) * 0.8 + 0.1)
        self.weight = nn.Parameter(torch.randn(192, 192) / 14)

    def forward(self, x):
        self.phase = 3.9 * self.phase * (1 - self.phase)
        angles = torch.arange(192, device=x.device)[:, None] * self.phase.repeat(3)
        return x * (torch.sin(angles) @ self.weight @ self.weight)


def get_inputs():
    return [torch.randn(192, 192)]


def get_init_inputs():
    return []
