"""Laws of splits: a value in parts of lower precision is not a cast, a plain cast is one."""

from __future__ import annotations

import ast

import pytest

from actors.evaluator.labels import labels
from actors.evaluator.labels.precision_splits import has_native_splits, has_python_splits

BF16 = "__nv_bfloat16 h = __float2bfloat16(x[i]); s[i] = h; t[i] = "
ASM = 'asm("cvt.rna.tf32.f32 %0, %1;" : "=r"({}) : "f"({}));'
SPLITS = {
    "both parts at once": BF16 + "__float2bfloat16(x[i] - __bfloat162float(h));",
    "a rest with a name": BF16 + "0; float r = x[i] - __bfloat162float(h); "
    "t[i] = __float2bfloat16(r);",
    "the kept part with a name": BF16 + "0; float kept = __bfloat162float(h); "
    "t[i] = __float2bfloat16_rn(x[i] - kept);",
    "three parts": "auto a = __float2bfloat16(v); float r = v - __bfloat162float(a); "
    "auto b = __float2bfloat16(r); float q = r - __bfloat162float(b); "
    "auto c = __float2bfloat16(q);",
    "a scaled rest": "half h = __float2half(v); "
    "half l = __float2half((v - __half2float(h)) * 2048.0f);",
    "subtracted in place": "half h = __float2half_rn(v); v -= __half2float(h); "
    "half l = __float2half_rn(v);",
    "pairs": "__nv_bfloat162 h = __floats2bfloat162_rn(v.x, v.y); "
    "__nv_bfloat162 l = __floats2bfloat162_rn(v.x - __low2float(h), v.y - __high2float(h));",
    "TF32 by assembly": ASM.format("hi", "v")
    + " float rest = v - __uint_as_float(hi); "
    + ASM.format("lo", "rest"),
    "TF32 by a function": "__device__ unsigned to_tf32(float x) { unsigned r; "
    + ASM.format("r", "x")
    + " return r; }\n__global__ void k(float* a) { unsigned hi = to_tf32(a[0]); "
    "unsigned lo = to_tf32(a[0] - __uint_as_float(hi)); }",
    "TF32 of fragments": "float big = wmma::__float_to_tf32(f.x[t]); "
    "float small = wmma::__float_to_tf32(f.x[t] - big);",
    "a function that splits": "__device__ void split(float x, bf16& hi, bf16& lo) { "
    "hi = __float2bfloat16(x); lo = __float2bfloat16(x - __bfloat162float(hi)); }",
    "by constructors": "half h = half(v); half l = half(v - float(h));",
}
CASTS = {
    "one cast": "s[i] = __float2bfloat16(x[i]);",
    "a maximum taken from halves": "half h = __float2half(x[i]); "
    "y[i] = expf(__half2float(h) - __half2float(m));",
    "a split of one operand alone": BF16
    + "__float2bfloat16(x[i] - __bfloat162float(h)); u[i] = __float2bfloat16(w[i]);",
    "TF32 once": ASM.format("hi", "v"),
    "a difference of two values": "h = __float2half(a[i] - b[i]);",
    "a rest of another value": "half h = __float2half(a[i]); half l = __float2half(c - b);",
    "a comment's worth of nothing": "",
}


@pytest.mark.parametrize("name", SPLITS)
def test_a_split_is_as_exact_as_its_value(name: str) -> None:
    """Error-compensated products are judged by their error, not by their types."""
    assert has_native_splits(SPLITS[name])


@pytest.mark.parametrize("name", CASTS)
def test_a_plain_cast_is_no_split(name: str) -> None:
    """What a cast lost is gone, whatever else is subtracted nearby."""
    assert not has_native_splits(CASTS[name])


TRITON = """
@triton.jit
def kernel(x, y):
    a = tl.load(x)
    {body}
    tl.store(y, a)
"""
SPLIT_BODIES = [
    "h = a.to(tl.bfloat16)\n    l = (a - h.to(tl.float32)).to(tl.bfloat16)",
    "h = a.to(tl.float16)\n    r = a - h\n    l = r.to(tl.float16)",
    "h = a.to(tl.bfloat16)\n    k = h.to(tl.float32)\n    l = (a - k).to(tl.bfloat16)\n"
    "    m = (a - k - l.to(tl.float32)).to(tl.bfloat16)",
]
CAST_BODIES = [
    "h = a.to(tl.bfloat16)",
    "h = a.to(tl.float16)\n    r = tl.exp(h - tl.max(h))",
    "h = a.to(tl.bfloat16)\n    l = (a - h.to(tl.float32)).to(tl.bfloat16)\n"
    "    w = b.to(tl.bfloat16)",
]


@pytest.mark.parametrize("body", SPLIT_BODIES)
def test_splits_in_triton(body: str) -> None:
    """The same holds for kernels in Python's syntax."""
    assert has_python_splits(ast.parse(TRITON.format(body=body)).body[0])


@pytest.mark.parametrize("body", CAST_BODIES)
def test_casts_in_triton(body: str) -> None:
    """A cast without its rest stays a cast."""
    assert not has_python_splits(ast.parse(TRITON.format(body=body)).body[0])


def test_the_label_follows() -> None:
    """A candidate of products in parts has no label; the same one with a plain cast has one."""
    source = 'import torch\nfrom torch.utils.cpp_extension import load_inline\nS = r"""\n'
    source += "#include <torch/extension.h>\n__global__ void k(float* x) { %s }\n"
    source += (
        '"""\next = load_inline(name="k", cuda_sources=S, functions=["run"])\n'
        "class ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return ext.run(x)\n"
    )
    reference = (
        "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        "        return x @ x\ndef get_inputs():\n    return [torch.randn(8, 8)]\n"
        "def get_init_inputs():\n    return []\n"
    )
    split = labels.labels_of(source % SPLITS["both parts at once"], reference=reference)
    cast = labels.labels_of(source % CASTS["one cast"], reference=reference)

    assert "precision_cast" not in split
    assert "precision_cast" in cast


@pytest.mark.parametrize("piece", ["f(", "a = b; ", "x - ", "a[", "__float2half(x", "g(a) { "])
def test_a_hostile_text_is_no_split(piece: str) -> None:
    """The candidate writes the text: no pattern backtracks for minutes on it."""
    assert not has_native_splits(piece * 20_000)
