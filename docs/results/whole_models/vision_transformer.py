"""CAFormer-S18 of timm with random weights: 64 images of 224 x 224."""

import os
import torch
DEVICE = os.environ.get("ADOPT_DEVICE", "cpu")
DTYPE = getattr(torch, os.environ.get("ADOPT_DTYPE", "float32"))
BIG = DEVICE == "cuda"
import timm
N = (64, 64, 48) if BIG else (2, 2, 1)
SIDE = 224

def build():
    torch.manual_seed(0)
    return timm.create_model("caformer_s18").eval().to(DEVICE, DTYPE)

def batches():
    g = torch.Generator().manual_seed(1)
    for n in N:
        yield (torch.randn(n, 3, SIDE, SIDE, generator=g).to(DEVICE, DTYPE),), {}
