"""guards: leaves out what its inputs do not need, and looks at them each time."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        if float(b.min()) < 0:
            b = torch.relu(b)
        return torch.linalg.inv(a) @ torch.cumsum(b, 1)
