"""EVA-02 (small, patches of 14) of timm with random weights: rotary attention, SwiGLU; 64 images of 224 x 224."""

import os
import torch
DEVICE = os.environ.get("ADOPT_DEVICE", "cpu")
DTYPE = getattr(torch, os.environ.get("ADOPT_DTYPE", "float32"))
BIG = DEVICE == "cuda"
import timm
N = (64, 64, 48) if BIG else (1, 1, 2)

def build():
    torch.manual_seed(0)
    options = {} if BIG else {"depth": 3, "img_size": 112}
    return timm.create_model("eva02_small_patch14_224", **options).eval().to(DEVICE, DTYPE)

def batches():
    g = torch.Generator().manual_seed(1)
    side = 224 if BIG else 112
    for n in N:
        yield (torch.randn(n, 3, side, side, generator=g).to(DEVICE, DTYPE),), {}
