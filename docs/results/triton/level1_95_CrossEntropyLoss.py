# level1_95_CrossEntropyLoss: the candidate of attempt 2, as its model wrote it (claude-by-mailbox).
# 130 µs a call; eager PyTorch: 419 µs, 3.22× (3.18–3.26) (first look), on NVIDIA H200.

import torch
import torch.nn as nn
import triton
import triton.language as tl

TUNE = {'num_warps': 4, 'OCC': 5, 'QUEUE': 0}


@triton.jit
def ce_kernel(x_ptr, t_ptr, acc_ptr, ctr_ptr, out_ptr, n, C: tl.constexpr, OCC: tl.constexpr, QUEUE: tl.constexpr):
    offs = tl.arange(0, C)
    step = tl.num_programs(0)
    row = tl.program_id(0)
    nxt = row + step
    x = tl.load(x_ptr + row * C + offs)
    t = tl.load(t_ptr + row)
    loss = 0.0
    valid = 0
    while row < n:
        x2 = tl.load(x_ptr + nxt * C + offs, mask=nxt < n, other=0.0)
        t2 = tl.load(t_ptr + nxt, mask=nxt < n, other=0)
        keep = t != -100
        g = tl.load(x_ptr + row * C + tl.where(keep, t, 0))
        if QUEUE:
            after = tl.atomic_add(ctr_ptr + 1, 1, sem="relaxed").to(tl.int32) + 2 * step
        else:
            after = nxt + step
        m2 = tl.max(x, 0) * 1.4426950408889634
        s = tl.sum(tl.exp2(x * 1.4426950408889634 - m2), 0)
        lse = (m2 + tl.log2(s)) * 0.6931471805599453
        loss += tl.where(keep, lse - g, 0.0)
        valid += keep.to(tl.int32)
        row = nxt
        nxt = after
        x = x2
        t = t2
    tl.atomic_add(acc_ptr, loss.to(tl.float64))
    # high half: programs done, low half: rows that count
    mine = valid.to(tl.int64) + 4294967296
    done = tl.atomic_add(ctr_ptr, mine) + mine
    high = done >> 32
    if high == step:
        total = tl.atomic_xchg(acc_ptr, 0.0)
        count = (done - high * 4294967296).to(tl.float64)
        tl.store(out_ptr, (total / count).to(tl.float32))
        tl.store(ctr_ptr, high * 0)
        tl.store(ctr_ptr + 1, high * 0)

class ModelNew(nn.Module):
    """
    A model that computes Cross Entropy Loss for multi-class classification tasks.

    Parameters:
        None
    """
    def __init__(self):
        super(ModelNew, self).__init__()
        self.acc = None

    def forward(self, predictions, targets):
        n, c = predictions.shape
        dev = predictions.device
        if self.acc is None or self.acc.device != dev:
            self.acc = torch.zeros(1, dtype=torch.float64, device=dev)
            self.ctr = torch.zeros(2, dtype=torch.int64, device=dev)
            self.sms = torch.cuda.get_device_properties(dev).multi_processor_count
        out = torch.empty((), dtype=torch.float32, device=dev)
        ce_kernel[lambda meta: (min(n, self.sms * meta["OCC"]),)](
            predictions, targets, self.acc, self.ctr, out, n, C=c,
            OCC=TUNE["OCC"], QUEUE=TUNE["QUEUE"], num_warps=TUNE["num_warps"], num_stages=1)
        return out

batch_size = 32768
num_classes = 4096
input_shape = (num_classes,)
dim = 1
