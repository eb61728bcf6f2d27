"""The task of the corpus of small steps: one of an optimiser, on tensors that its caller owns."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, weights, gradients, average):
        average.mul_(0.9999).add_(weights, alpha=1e-4)
        weights.add_(gradients.sign(), alpha=-1e-4)
        return gradients.norm()


def get_inputs():
    return [torch.randn(256, 512), torch.randn(256, 512), torch.randn(256, 512)]


def get_init_inputs():
    return []
