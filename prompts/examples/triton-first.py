import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def bias_hardswish_kernel(x, bias, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    for first in range(0, columns, BLOCK):
        offsets = first + tl.arange(0, BLOCK)
        inside = offsets < columns
        v = tl.load(x + row * columns + offsets, mask=inside, other=0.0)
        v = v + tl.load(bias + offsets, mask=inside, other=0.0)
        y = v * tl.minimum(tl.maximum(v + 3.0, 0.0), 6.0) * (1.0 / 6.0)
        tl.store(out + row * columns + offsets, y, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        output = torch.empty_like(x)
        bias_hardswish_kernel[(rows,)](x, self.bias, output, columns, BLOCK=1024)
        return output, output.mean(dim=1)
