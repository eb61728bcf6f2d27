"""plain: the task's own operations, some of them in place."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        for _step in range(6):
            x = torch.sin(x).mul_(1.1).add_(0.1).tanh_()
        return x
