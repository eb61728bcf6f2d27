"""streams: half of the work on a side stream that is joined."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))
        self.side = torch.cuda.Stream()

    def forward(self, x, y):
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            first = torch.relu(x[:512] @ y) + self.bias
        second = torch.relu(x[512:] @ y) + self.bias
        torch.cuda.current_stream().wait_stream(self.side)
        first.record_stream(torch.cuda.current_stream())
        return torch.cat([first, second])
