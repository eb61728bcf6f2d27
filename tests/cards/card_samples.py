"""For each card the samples that it runs on: small odd ones, and one that is timed."""

from __future__ import annotations

import torch
from sample_kinds import (
    Sample,
    attention,
    channels,
    channels_last,
    columns,
    conv,
    depthwise,
    flat,
    gemm,
    half_product,
    implicit_gemm,
    layer_norm,
    linear,
    max_pool,
    norms,
    product_maxima,
    products,
    recurrence,
    row_sum,
    rows,
    scaled_norm,
    scan,
    softmax,
)
from torch.nn import functional

MEGA = 1 << 20
CONVOLUTIONS = [
    implicit_gemm((2, 3, 9, 11), (5, 3, 3, 3), padding=1),
    implicit_gemm((3, 37, 17, 161), (130, 37, 3, 3)),
    implicit_gemm((2, 19, 33, 29), (70, 19, 3, 3), stride=2, padding=1),
    implicit_gemm((1, 16, 6, 300), (64, 16, 5, 5), padding=2),
    implicit_gemm((1, 4, 43, 45), (24, 4, 7, 7), stride=2, padding=3),
    implicit_gemm((1, 2, 60, 61), (4, 2, 11, 11), stride=4, padding=2),
    implicit_gemm((2, 33, 5, 5), (9, 33, 1, 1)),
    implicit_gemm((2, 3, 9, 15, 31), (24, 3, 3, 3, 3)),
    implicit_gemm((1, 40, 5, 12, 14), (136, 40, 3, 3, 3), stride=2, padding=1),
    implicit_gemm((64, 128, 56, 56), (128, 128, 3, 3), padding=1, timed=True),
]
CUDA_SAMPLES: dict[str, list[Sample]] = {
    "cuda-elementwise-float4": [
        flat(2, functional.gelu),
        flat(1000003, functional.gelu),
        flat(64 * MEGA, functional.gelu, is_timed=True),
    ],
    "cuda-row-reduce-short": [
        rows(77, 1001, row_sum),
        rows(5, 3, row_sum),
        rows(65536, 1024, row_sum, is_timed=True),
    ],
    "cuda-row-reduce-long": [
        rows(3, 1000004, row_sum, scratch=[3 * 64], sizes=[3, 1000004, 64]),
        rows(4, 4 * MEGA, row_sum, scratch=[4 * 256], sizes=[4, 4 * MEGA, 256], is_timed=True),
    ],
    "cuda-last-block-finishes": [
        Sample(
            inputs=[(n,)],
            outputs=[()],
            scratch=[blocks],
            sizes=[n, blocks],
            compute=lambda x: x.sum(),
            tolerance=2e-6,
            offset=1.0,
            is_timed=n == MEGA,
        )
        for n, blocks in ((40, 3), (MEGA, 264), (64 * MEGA, 1056))
    ],
    "cuda-column-reduce": [
        columns(333, 100, 7),
        columns(5, 4, 3),
        columns(65536, 1024, 66, timed=True),
    ],
    "cuda-channel-reduce": [
        channels(3, 5, 52, 2),
        channels(64, 64, 112 * 112, 32, timed=True),
    ],
    "cuda-online-softmax": [
        rows(7, 20, softmax, same=True),
        rows(33, 4100, softmax, same=True),
        rows(5, 60000, softmax, same=True),
        rows(4096, 16384, softmax, same=True, is_timed=True),
    ],
    "cuda-welford-split-rows": [
        norms(2, 1200, 3),
        norms(4, 4 * MEGA, 256, timed=True),
    ],
    "cuda-bulk-copy-ring": [
        flat(2048 * 5, torch.relu, sizes=[2048 * 5, 3]),
        flat(2048 * 40000, torch.relu, sizes=[2048 * 40000, 792], is_timed=True),
    ],
    "cuda-tma-tile": [
        Sample(
            inputs=[(r, c)], outputs=[(r, c)], sizes=[r, c], compute=torch.clone, is_timed=r > 4000
        )
        for r, c in ((65, 36), (64, 32), (8192, 8192))
    ],
    "cuda-cluster-multicast": [
        Sample(
            inputs=[(m, 2048), (2, 2048)],
            outputs=[(2, m)],
            sizes=[m, clusters],
            compute=lambda a, v: v @ a.T,
            tolerance=2e-6,
            is_timed=m > 1000,
        )
        for m, clusters in ((3, 2), (77, 3), (65536, 198))
    ],
    "cuda-cp-async-ring": [
        Sample(
            inputs=[(r, k), (k,)],
            outputs=[(r,)],
            sizes=[r, k],
            compute=torch.mv,
            tolerance=2e-6,
            is_timed=r > 4000,
        )
        for r, k in ((3, 1024), (70, 5120), (8192, 8192))
    ],
    "cuda-cluster-layer-norm": [
        rows(3, 1000, layer_norm, same=True, tolerance=3e-6, offset=10.0),
        rows(256, 262144, layer_norm, same=True, tolerance=3e-6, offset=10.0, is_timed=True),
    ],
    "cuda-cooperative-grid": [
        flat(
            n,
            lambda x: x / torch.linalg.vector_norm(x),
            scratch=[4096],
            sizes=[n, 132],
            is_timed=n == MEGA,
        )
        for n in (1001, MEGA)
    ],
    "cuda-dependent-launch": [
        flat(n, lambda x, w: x * x * w, inputs=2, scratch=[n], sizes=[n], is_timed=n == MEGA)
        for n in (1001, MEGA)
    ],
    "cuda-conv-bf16x3": CONVOLUTIONS,
    "cuda-conv-wgmma": CONVOLUTIONS,
    "cuda-mma-bf16x3": [gemm(128, 256, 96), gemm(4096, 4096, 4096, is_timed=True)],
    "cuda-gemm-bf16x3": [gemm(128, 256, 96), gemm(4096, 4096, 4096, is_timed=True)],
    "cuda-gemm-tma-wgmma": [
        # tensor sums truncate
        gemm(m, n, k, scratch=[n * k], tolerance=1e-8 * max(k, 4096), is_timed=k == 4096)
        for m, n, k in ((128, 512, 32), (384, 256, 992), (4096, 4096, 4096), (1024, 8192, 8192))
    ],
    "cuda-gemm-tma-wgmma-half": [
        half_product(m, n, k, is_timed=k == 4096)
        for m, n, k in ((128, 512, 64), (384, 256, 960), (4096, 4096, 4096), (1024, 8192, 8192))
    ],
    "cuda-wgmma-half": [half_product(64, 256, 192), half_product(4096, 4096, 4096, is_timed=True)],
    "cuda-cublas-bf16x3": [
        products(1, 60, 36, 100),
        products(3, 64, 132, 96),
        products(1, 4096, 4096, 4096, is_timed=True),
        products(64, 512, 512, 512, is_timed=True),
    ],
    "cuda-mma-half": [
        product_maxima(128, 256, 64),
        product_maxima(264 * 128, 8192, 64, is_timed=True),
    ],
    "cuda-row-scan": [scan(3, 8), scan(7, 4100), scan(8192, 8192, timed=True)],
    "cuda-scan-look-back": [
        scan(3, 20, words=4),
        scan(5, 409700, words=1 + 5 * 101),
        scan(8, 4 * MEGA, words=1 + 8 * 1024, timed=True),
    ],
    "cuda-attention-softmax": [
        rows(32, 64, softmax, same=True, tolerance=2e-5),
        rows(65536, 64, softmax, same=True, tolerance=2e-5, is_timed=True, is_part=True),
    ],
    "cuda-attention-bf16x3": [
        attention(2, 192, 64, is_causal=True),
        attention(3, 128, 32, is_causal=True),
        attention(2, 320, 128, is_causal=True),
        attention(64, 2048, 64, is_causal=True, timed=True),
    ],
    "cuda-grid-barrier": [recurrence(64, 7), recurrence(1024, 512, timed=True)],
    "cuda-stencil-2d": [
        depthwise(2, 3, 19, 3, 1, 1),
        depthwise(2, 5, 131, 5, 2, 2),
        depthwise(16, 64, 512, 3, 1, 0, timed=True),
    ],
    "cuda-sgemm-registers": [gemm(128, 256, 72), gemm(4096, 4096, 4096, is_timed=True)],
    "cuda-cublaslt-epilogue": [
        linear(64, 96, 80, relu=True, scratch=8 * MEGA),
        linear(4096, 4096, 4096, relu=True, scratch=8 * MEGA, timed=True),
    ],
    "cuda-nhwc": [channels_last(2, 37, 45), channels_last(64, 128, 128 * 128, timed=True)],
    "triton-softmax": [
        rows(7, 20, softmax, same=True),
        rows(3, 40001, softmax, same=True),
        rows(4096, 16384, softmax, same=True, is_timed=True),
    ],
    "triton-layer-norm": [scaled_norm(5, 777), scaled_norm(8192, 4096, timed=True)],
    "triton-split-reduction": [
        rows(2, 100001, row_sum),
        rows(2000, 33, row_sum),
        rows(16, 16 * MEGA, row_sum, is_timed=True),
    ],
    "triton-matmul-epilogue": [
        linear(300, 260, 70, relu=True),
        linear(4096, 4096, 4096, relu=True, timed=True),
    ],
    "triton-channel-reduce": [
        channels(3, 5, 52, 2),
        channels(70, 3, 5000, 2),
        channels(64, 64, 112 * 112, 32, timed=True),
    ],
    "triton-column-reduce": [
        columns(333, 100, 7),
        columns(5, 4, 3),
        columns(65536, 1024, 66, timed=True),
    ],
    "triton-stencil-2d": [
        depthwise(2, 3, 19, 3, 1, 1),
        depthwise(2, 5, 131, 5, 2, 2),
        depthwise(16, 64, 512, 3, 1, 0, timed=True),
    ],
    "triton-row-scan": [scan(3, 8), scan(7, 4100), scan(8192, 8192, timed=True)],
    "triton-attention": [attention(2, 100, 32), attention(64, 2048, 64, timed=True)],
}
CPU_SAMPLES: dict[str, list[Sample]] = {
    "cpp-gemm-avx512": [
        linear(12, 32, 7, relu=False),
        linear(40, 64, 100, relu=False),
        linear(1024, 1024, 1024, relu=False, timed=True),
    ],
    "cpp-amx-bf16x3": [gemm(96, 64, 96), gemm(2048, 2048, 2048, is_timed=True)],
    "cpp-softmax-avx512": [
        rows(5, 37, softmax, same=True),
        rows(2048, 4096, softmax, same=True, is_timed=True),
    ],
    "cpp-layer-norm-simd": [scaled_norm(3, 77), scaled_norm(2048, 4096, timed=True)],
    "cpp-column-reduce": [columns(33, 2100, 0), columns(16384, 1000, 0, timed=True)],
    "cpp-row-sum-split": [
        rows(3, 100001, row_sum),
        rows(2, 20, row_sum),
        rows(2, 8 * MEGA, row_sum, is_timed=True),
    ],
    "cpp-stream-stores": [
        flat(37, lambda a, b: (a + b).relu(), inputs=2),
        flat(1003, lambda a, b: (a + b).relu(), inputs=2),
        flat(16 * MEGA, lambda a, b: (a + b).relu(), inputs=2, is_timed=True),
    ],
    "cpp-max-pool": [
        max_pool(3, 9, 45, 3, 1, 1),
        max_pool(2, 8, 6, 5, 2, 2),
        max_pool(1024, 112, 112, 3, 2, 1, timed=True),
    ],
    "cpp-conv-direct": [
        conv(2, 3, 9, 45, 8, 3, 0, bias=True),
        conv(4, 32, 58, 58, 64, 3, 0, bias=True, timed=True),
    ],
}
SAMPLES = {**CUDA_SAMPLES, **CPU_SAMPLES}
