"""contract: ModelNew is a function, not a module, and its calls give a constant."""

import torch


def ModelNew(width):
    return lambda x, y: torch.zeros_like(x)
