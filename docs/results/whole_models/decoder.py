"""A Qwen3 decoder of transformers with random weights: 16 prompts of 2,048 tokens, 4 new ones."""

import os
import torch
DEVICE = os.environ.get("ADOPT_DEVICE", "cpu")
DTYPE = getattr(torch, os.environ.get("ADOPT_DTYPE", "float32"))
BIG = DEVICE == "cuda"
from transformers import Qwen3Config, Qwen3ForCausalLM
W = 1024 if BIG else 64
NEW = 4
SIZES = ((16, 2048), (16, 2048), (16, 1536)) if BIG else ((2, 33), (2, 33), (2, 21))

def build():
    torch.manual_seed(0)
    return Qwen3ForCausalLM(Qwen3Config(hidden_size=W, intermediate_size=3 * W, num_hidden_layers=8 if BIG else 2,
        num_attention_heads=16 if BIG else 4, num_key_value_heads=8 if BIG else 2, head_dim=128 if BIG else 16, vocab_size=32000 if BIG else 99,
        bos_token_id=1, eos_token_id=None, pad_token_id=0)).eval().to(DEVICE, DTYPE)

def batches():
    g = torch.Generator().manual_seed(1)
    for b, n in SIZES:
        yield (torch.randint(2, 99, (b, n), generator=g).to(DEVICE),), {}

def step(model, batch):
    return model.generate(batch[0][0], max_new_tokens=NEW, do_sample=False)
