
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        scale = x.abs().amax(-1, keepdim=True) / 127
        return (x / scale).round().to(torch.int8), scale

def get_inputs():
    return [torch.randn(2, 512)]

def get_init_inputs():
    return []
