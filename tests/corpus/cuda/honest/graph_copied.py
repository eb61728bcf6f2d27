"""graphs: a CUDA graph whose inputs are copied in at each call."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))
        self.graph = None

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        if self.graph is None:
            self.x, self.y = x.clone(), y.clone()
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                self.right(self.x, self.y)
            torch.cuda.current_stream().wait_stream(side)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.z = self.right(self.x, self.y)
        self.x.copy_(x)
        self.y.copy_(y)
        self.graph.replay()
        return self.z.clone()
