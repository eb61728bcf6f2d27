"""The techniques that a source or a plan names, by names of instructions and libraries.  Pure.

Cards are fitted to a request by them, and lessons are counted by them.
"""

from __future__ import annotations

import re

# Names of instructions and libraries by which a technique is known in a text.
TECHNIQUES = {
    "wgmma": re.compile(r"wgmma"),
    "mma": re.compile(r"(?<!wg)mma[._](?:sync|m16)|nvcuda::wmma|mma\.sync"),
    "bulk copies": re.compile(r"cp\.async\.bulk|\bTMA\b|[Tt]ensorMap|bulk[- ]cop"),
    "asynchronous copies": re.compile(r"cp\.async(?!\.bulk)|__pipeline"),
    # Bulk copies without clusters name them in PTX: "shared::cluster", "release.cluster".
    "clusters": re.compile(
        r"__cluster_dims__|this_cluster|ClusterDimension|(?<![:.])\bclusters?\b"
    ),
    "grid barriers": re.compile(r"this_grid|[Cc]ooperative|grid barrier"),
    "dependent launches": re.compile(r"griddepcontrol|[Pp]rogrammatic"),
    "cuBLAS": re.compile(r"cublas", re.IGNORECASE),
    "split products": re.compile(r"bf16x2|bfloat162|[3×x]\s?(?:bf16|TF32)|split bf", re.IGNORECASE),
    "vector units": re.compile(r"_mm512|__m512|svfloat|float32x4|AVX|AMX|_tile_"),
    "streaming stores": re.compile(r"_stream_(?:ps|pd|si)|streaming stores?|non-temporal", re.I),
    "Triton's products": re.compile(r"tl\.dot"),
}


def techniques_in(text: str) -> set[str]:
    """Return the techniques that a source or a plan names."""
    return {name for name, pattern in TECHNIQUES.items() if pattern.search(text)}
