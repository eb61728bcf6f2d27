# level2_99_Matmul_GELU_Softmax: the candidate of attempt 2, as its model wrote it (claude-by-mailbox).
# 557 µs a call; eager PyTorch: 2.86 ms, 5.14× (5.10–5.19) (first look), on NVIDIA H200.

import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

TUNE = {'BM': 128, 'STAGES': 3, 'WARPS': 8}


@triton.jit
def split_row(src, half, f8, stat, row, K, BK: tl.constexpr, X: tl.constexpr, A: tl.constexpr):
    k = tl.arange(0, BK)
    inside = k < K
    v = tl.load(src + row * K + k, mask=inside, other=0.0)
    s = tl.sum(v, 0)
    if X:
        s = s / K
        v = v - s
    tl.store(stat + row, s)
    h = v.to(tl.float16)
    tl.store(half + row * K + k, h, mask=inside)
    high = (v * A).to(tl.float8e4nv)
    low = ((v - h.to(tl.float32)) * (A * 2048)).to(tl.float8e4nv)
    p = f8 + row * 2 * K + k
    # x: high | low, w: low | high
    if X:
        tl.store(p, high, mask=inside)
        tl.store(p + K, low, mask=inside)
    else:
        tl.store(p, low, mask=inside)
        tl.store(p + K, high, mask=inside)


@triton.jit
def split_kernel(x, x16, x8, mean, w, w16, w8, wsum, M, K, BK: tl.constexpr):
    row = tl.program_id(0)
    if row < M:
        split_row(x, x16, x8, mean, row, K, BK, True, 4.0)
    else:
        split_row(w, w16, w8, wsum, row - M, K, BK, False, 4096.0)


@triton.jit
def gemm_gelu_kernel(x8, w8, x16, w16, mean, wsum, bias, y, M, N, K,
                     BM: tl.constexpr, BN: tl.constexpr):
    pid = tl.program_id(0)
    nm = tl.cdiv(M, BM)
    m = pid % nm * BM
    n = pid // nm * BN
    acc = tl.zeros([BM, BN], tl.float32)
    for k in range(0, 2 * K, 128):
        acc = tl.dot(x8.load([m, k]), w8.load([n, k]).T, acc)
    acc = acc * 2.98023223876953125e-08
    for k in range(0, K, 64):
        acc = tl.dot(x16.load([m, k]), w16.load([n, k]).T, acc)
    rm = m + tl.arange(0, BM)
    rn = n + tl.arange(0, BN)
    b = tl.load(bias + rn, mask=rn < N, other=0.0)
    ws = tl.load(wsum + rn, mask=rn < N, other=0.0)
    mu = tl.load(mean + rm, mask=rm < M, other=0.0)
    z = acc + (b[None, :] + mu[:, None] * ws[None, :])
    z = 0.5 * z * (1.0 + tl.erf(z * 0.7071067811865476))
    tl.store(y + rm[:, None] * N + rn[None, :], z, mask=(rm < M)[:, None] & (rn < N)[None, :])


@triton.jit
def softmax_kernel(y, N, BN: tl.constexpr):
    k = tl.arange(0, BN)
    p = y + tl.program_id(0) * N + k
    v = tl.load(p, mask=k < N, other=-float("inf"))
    v = tl.exp(v - tl.max(v, 0))
    tl.store(p, v * (1.0 / tl.sum(v, 0)), mask=k < N)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        w, b = self.linear.weight, self.linear.bias
        M, K = x.shape
        N = w.shape[0]
        d = x.device
        x16 = torch.empty(M, K, device=d, dtype=torch.float16)
        w16 = torch.empty(N, K, device=d, dtype=torch.float16)
        x8 = torch.empty(M, 2 * K, device=d, dtype=torch.float8_e4m3fn)
        w8 = torch.empty(N, 2 * K, device=d, dtype=torch.float8_e4m3fn)
        mean = torch.empty(M, device=d, dtype=torch.float32)
        wsum = torch.empty(N, device=d, dtype=torch.float32)
        split_kernel[(M + N,)](x, x16, x8, mean, w, w16, w8, wsum, M, K,
                               triton.next_power_of_2(K), num_warps=TUNE["WARPS"])
        y = torch.empty(M, N, device=d, dtype=torch.float32)
        BM = TUNE["BM"]
        BN = 32768 // BM
        gemm_gelu_kernel[(triton.cdiv(M, BM) * triton.cdiv(N, BN),)](
            TensorDescriptor.from_tensor(x8, [BM, 128]),
            TensorDescriptor.from_tensor(w8, [BN, 128]),
            TensorDescriptor.from_tensor(x16, [BM, 64]),
            TensorDescriptor.from_tensor(w16, [BN, 64]),
            mean, wsum, b, y, M, N, K, BM, BN,
            num_warps=8, num_stages=TUNE["STAGES"])
        softmax_kernel[(M,)](y, N, triton.next_power_of_2(N), num_warps=8)
        return y
