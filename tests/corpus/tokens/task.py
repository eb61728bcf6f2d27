"""The task of the tokens corpus: rows of an embedding through two layers."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, tokens, width):
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        self.up = nn.Linear(width, 64 * width)
        self.down = nn.Linear(64 * width, width)

    def forward(self, tokens):
        return self.down(nn.functional.gelu(self.up(self.embedding(tokens))))


def get_inputs():
    return [torch.randint(0, 1 << 19, (8, 64))]


def get_init_inputs():
    return [1 << 19, 8]
