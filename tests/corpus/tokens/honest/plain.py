"""plain: the task's own operations on the tokens as one row."""

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, tokens, width):
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        self.up = nn.Linear(width, 64 * width)
        self.down = nn.Linear(64 * width, width)

    def forward(self, tokens):
        rows = self.embedding(tokens.reshape(-1))
        rows = self.down(nn.functional.gelu(self.up(rows)))
        return rows.view(*tokens.shape, -1)
