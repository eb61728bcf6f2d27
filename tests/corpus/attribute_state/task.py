"""The task of the corpus of state in attributes: a tensor and a number that no state dict has."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.i2h = nn.Linear(384, 192)
        self.h2o = nn.Linear(192, 192)
        self.hidden = torch.zeros(64, 192)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        self.hidden = torch.tanh(self.i2h(torch.cat((x, self.hidden.to(x.device)), 1)))
        self.last = x.detach()
        return self.h2o(self.hidden) / (1 + self.calls % 7)


def get_inputs():
    return [torch.randn(64, 192)]


def get_init_inputs():
    return []
