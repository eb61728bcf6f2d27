"""Texts of a made-up run: ideas, reasons of failures, a source."""

from __future__ import annotations

IDEAS = (
    "Fuse the GELU into the epilogue of the first product: the hidden layer is written once.",
    "Keep the weights in registers over four rows of the batch.",
    "Use 16-byte vector loads for the activations and align the scratch buffer to 64 bytes.",
    "Split the reduction over two warps and combine through shared memory.",
    "Replace erf by a polynomial that is exact to the task's tolerance.",
    "Tile the second product by 64 × 32 so that its operands stay in the L2 cache.",
    "Compute the bias and the residual in the same pass as the store.",
    "Unroll the inner loop eight times and let the compiler schedule the loads early.",
    "Transpose the weights once in the constructor instead of at every call.",
    "Use one kernel for both layers and keep the intermediate tile in shared memory.",
)
FAILURES = {
    "wrong": "output[3, 17]: expected 0.412873, got 0.398122; 4,096 of 65,536 elements differ",
    "compile_failed": 'kernel.cu(41): error: no variable "tile_k" is declared here',
    "crashed": "SIGSEGV in forward, at input kind 'sparse'",
    "timed_out": "the call ran past its limit of 12.8 s",
    "rejected": "the candidate read the expected output from the caller's frame",
    "no_candidate": "the reply has no code block with ModelNew",
}
SOURCE = '''"""A perceptron with one hidden layer."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

KERNEL = r"""
template <int TILE>
__global__ void mlp(const float* x, const float* w, const float* b, float* y, int n, int k) {
    __shared__ float tile[TILE][TILE + 1];
    float sum = 0.0f;
    for (int step = 0; step < k; step += TILE) {
        tile[threadIdx.y][threadIdx.x] = x[blockIdx.y * k + step + threadIdx.x];
        __syncthreads();
        // %(idea)s
        for (int i = 0; i < TILE; i += %(unroll)d) sum += tile[threadIdx.y][i] * w[step + i];
        __syncthreads();
    }
    y[blockIdx.y * n + threadIdx.x] = 0.5f * sum * (1.0f + erff(sum * 0.70710678f));
}
"""


class ModelNew(nn.Module):
    def __init__(self, width: int = %(width)d) -> None:
        super().__init__()
        self.first = nn.Linear(width, 4 * width)
        self.second = nn.Linear(4 * width, width)
        self.kernel = load_inline("mlp", cpp_sources="", cuda_sources=KERNEL)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.kernel.mlp(x, self.first.weight, self.first.bias)
        return self.second(hidden)
'''
