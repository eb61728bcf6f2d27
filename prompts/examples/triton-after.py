import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def bias_hardswish_mean_kernel(x, bias, out, means, columns, BLOCK: tl.constexpr):
    # One program a row: the row is read once and written once; its sum stays on the chip.
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for first in range(0, columns, BLOCK):
        offsets = first + tl.arange(0, BLOCK)
        inside = offsets < columns
        v = tl.load(x + row * columns + offsets, mask=inside, other=0.0)
        v = v + tl.load(bias + offsets, mask=inside, other=0.0)
        y = v * tl.minimum(tl.maximum(v + 3.0, 0.0), 6.0) * (1.0 / 6.0)
        tl.store(out + row * columns + offsets, y, mask=inside)
        total += tl.where(inside, y, 0.0)
    tl.store(means + row, tl.sum(total, axis=0) / columns)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        output = torch.empty_like(x)
        means = torch.empty(rows, dtype=x.dtype, device=x.device)
        block = min(1024, triton.next_power_of_2(columns))
        bias_hardswish_mean_kernel[(rows,)](x, self.bias, output, means, columns, BLOCK=block)
        return output, means
