"""statistics: has its buffers under other names, and some as new tensors of each call."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gamma, self.beta = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("variance", torch.ones(width))
        self.batches = torch.tensor(0)

    def forward(self, x):
        self.batches = self.batches.to(x.device) + 1
        mean = self.mean.clone()
        normed = nn.functional.batch_norm(
            x, mean, self.variance, self.gamma, self.beta, True, 0.1, 1e-5
        )
        self.mean = mean
        return torch.relu_(normed)
