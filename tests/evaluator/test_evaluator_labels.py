"""Each way to avoid a kernel gets its label, and honest code gets none."""

from __future__ import annotations

import textwrap

import pytest

from actors.evaluator.labels import labels
from protocol.values import RENAMED_REFERENCE

REFERENCE = """
import torch, torch.nn as nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8))
    def forward(self, x):
        return torch.relu(x @ self.weight).sum(dim=1)
def get_inputs(): return [torch.randn(4, 8)]
def get_init_inputs(): return []
"""
POINTWISE = REFERENCE.replace("x @ self.weight", "x * self.weight").replace(".sum(dim=1)", "")

CPP = """
SOURCE = r'''
#include <torch/extension.h>
torch::Tensor relu(torch::Tensor x) {
    auto out = torch::empty_like(x);
    for (int64_t i = 0; i < x.numel(); ++i)
        out.data_ptr<float>()[i] = std::max(0.f, x.data_ptr<float>()[i]);
    return out;
}
'''
"""
CUDA = """
SOURCE = r'''
#include <torch/extension.h>
// casts with __float2half( in this comment only
template <typename T>
__global__ void __launch_bounds__(256) relu_kernel(const T* x, T* out, int n) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i < n) out[i] = x[i] > 0 ? x[i] : T(0);
}
torch::Tensor relu(torch::Tensor x);
'''
"""
BUILD = "ext = load_inline(name='k', cpp_sources=SOURCE, functions=['relu'])\n"
IMPORTS = """
import torch, torch.nn as nn, torch.nn.functional as F
from torch.utils.cpp_extension import load_inline
"""


def module(forward: str, *, init: str = "pass", before: str = CPP + BUILD, more: str = "") -> str:
    body = [
        "class ModelNew(nn.Module):",
        "    def __init__(self):",
        "        super().__init__()",
        "        self.weight = nn.Parameter(torch.randn(8, 8))",
        textwrap.indent(textwrap.dedent(init).strip(), " " * 8),
        "    def forward(self, x):",
        textwrap.indent(textwrap.dedent(forward).strip(), " " * 8),
        textwrap.indent(textwrap.dedent(more).strip(), " " * 4),
    ]
    return IMPORTS + before + "\n".join(body) + "\n"


TRITON = """
import triton, triton.language as tl
@triton.autotune(configs=[], key=['n'])
@triton.jit
def relu_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(out_ptr + at, tl.maximum(x, 0.0), mask=at < n)
def relu(x):
    out = torch.empty_like(x)
    relu_kernel[(1,)](x, out, x.numel(), BLOCK=1024)
    return out
"""
LAZY = """
_ext = None
def get():
    global _ext
    if _ext is None:
        _ext = load_inline(name='k', cpp_sources=SOURCE)
    return _ext
"""
FUNCTION = """
class Relu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return ext.relu(x)
"""
TABLE = "TABLE = {}\nTABLE['relu'] = load_inline(name='k', cpp_sources=SOURCE).relu\n"
OPERATOR = """
torch.utils.cpp_extension.load(name='k', sources=['k.cpp'], is_python_module=False)
"""
DISPATCH = """
SOURCE = r'''
#include <torch/extension.h>
torch::Tensor relu(torch::Tensor x) {
    if (x.scalar_type() == at::kHalf) { run<__half>(x, __float2half(0.f)); }
    for (;;) {}
}
'''
"""
SPLIT = "x[i] - __half2float(__float2half(x[i]))"
RETRY = """
try:
    ext = load_inline(name='k', cpp_sources=SOURCE, extra_cflags=['-march=native'])
except RuntimeError:
    ext = load_inline(name='k', cpp_sources=SOURCE)
"""
REPORTED = """
try:
    ext = load_inline(name='k', cpp_sources=SOURCE)
except Exception as error:
    print(error)
    raise
"""
GUARDED = "try:\n    import numpy\nexcept ImportError:\n    numpy = None\n"

HONEST = {
    "plain": module("return ext.relu(x)"),
    "an attribute of the module": module("return self.op.relu(x)", init="self.op = ext"),
    "one function as an attribute": module("return self.relu(x)", init="self.relu = ext.relu"),
    "built lazily": module("return get().relu(x)", before=CPP + LAZY),
    "in an autograd function": module("return Relu.apply(x)", before=CPP + BUILD + FUNCTION),
    "in a table": module("return TABLE['relu'](x)", before=CPP + TABLE),
    "an operator": module("return torch.ops.mine.relu(x)", before=OPERATOR),
    "triton": module("return relu(x)", before=TRITON),
    "written into": module("out = torch.empty_like(x)\next.relu_out(x, out)\nreturn out"),
    "in place on a copy": module("x = x.clone()\next.relu_(x)\nreturn x"),
    "in a buffer": module("ext.relu_out(x, self.out)\nreturn self.out"),
    "through a method": module("return self.fast(x)", more="def fast(self, x): return ext.relu(x)"),
    "a layer of its own": module(
        "return self.layer(x)",
        init="self.layer = Layer()",
        before=CPP + BUILD + "class Layer(nn.Module):\n    def forward(self, x):\n"
        "        return ext.relu(x)\n",
    ),
    "kernel and library": module("return ext.relu(F.linear(x, self.weight))"),
    "a card's way and another": module("return ext.relu(x) if x.is_cuda else torch.relu(x)"),
    "built again with fewer flags": module("return torch.relu(ext.relu(x))", before=CPP + RETRY),
    "failure printed and raised": module("return torch.relu(ext.relu(x))", before=CPP + REPORTED),
    "a guarded import": module("return torch.relu(ext.relu(x))", before=CPP + BUILD + GUARDED),
    "halves where inputs are": module("return ext.relu(x)", before=DISPATCH + BUILD),
    "products of both parts": module(
        "return ext.relu(x)", before=CUDA.replace("T(0)", SPLIT) + BUILD
    ),
    "dispatch on the dtype": module(
        "if x.dtype == torch.float16:\n    return ext.relu(x.half())\nreturn ext.relu(x)"
    ),
    "a word in a comment": module("return ext.relu(x)  # no .half() here", before=CUDA + BUILD),
    "widened": module("return ext.relu(x.double()).to(torch.float32)"),
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_code_has_no_label(name: str) -> None:
    """The author may store, build and reach a kernel in any way."""
    assert () == labels.labels_of(HONEST[name], reference=POINTWISE)


FALLBACK = "try:\n    return ext.relu(x)\nexcept Exception:\n    return torch.relu(x)"
SUPPRESSED = """
import contextlib
with contextlib.suppress(Exception):
    return ext.relu(x)
return torch.relu(x)
"""
SILENT_BUILD = (
    "try:\n    ext = load_inline(name='k', cpp_sources=SOURCE)\nexcept Exception:\n    ext = None\n"
)
WRAPPER = CPP[: CPP.index("auto out")] + "return torch::relu(x);\n}\n'''\n"
TF32 = "torch.backends.cuda.matmul.allow_tf32 = True\n"

LABELLED = {
    "no kernel": (module("return torch.relu(x)", before=""), "library_only"),
    "torch.compile": (
        module("return f(x)", before="f = torch.compile(torch.relu)\n"),
        "library_only",
    ),
    "C++ around torch": (module("return ext.relu(x)", before=WRAPPER + BUILD), "library_only"),
    "a call that may fail": (module(FALLBACK), "fallback_swallowed"),
    "suppressed": (module(SUPPRESSED), "fallback_swallowed"),
    "a build that may fail": (
        module("return ext.relu(x) if ext else torch.relu(x)", before=CPP + SILENT_BUILD),
        "fallback_swallowed",
    ),
    "never called": (module("return torch.relu(x)", init="self.op = ext"), "decoy_kernel"),
    "only inspected": (module("assert ext is not None\nreturn torch.relu(x)"), "decoy_kernel"),
    "dropped": (module("_ = ext.relu(x)\nreturn torch.relu(x)"), "decoy_kernel"),
    "after the return": (module("return torch.relu(x)\nreturn ext.relu(x)"), "decoy_kernel"),
    "if False": (module("if False:\n    x = ext.relu(x)\nreturn torch.relu(x)"), "decoy_kernel"),
    "in a method that is never called": (
        module("return torch.relu(x)", more="def fast(self, x): return ext.relu(x)"),
        "decoy_kernel",
    ),
    "triton, not launched": (module("return torch.relu(x)", before=TRITON), "decoy_kernel"),
    "halves": (module("return ext.relu(x.half()).float()"), "precision_cast"),
    "autocast": (
        module("with torch.autocast('cuda'):\n    return ext.relu(x)"),
        "precision_cast",
    ),
    "weights in bfloat16": (
        module("return ext.relu(x)", init="self.weight.data = self.weight.to(torch.bfloat16)"),
        "precision_cast",
    ),
    "TF32 allowed": (module("return ext.relu(x)", before=CPP + BUILD + TF32), "precision_cast"),
    "halves in the kernel": (
        module("return ext.relu(x)", before=CUDA.replace("T(0)", "__float2half(0)") + BUILD),
        "precision_cast",
    ),
}


@pytest.mark.parametrize("name", LABELLED)
def test_a_candidate_without_a_used_kernel_has_exactly_its_label(name: str) -> None:
    """Each way to avoid the work of a kernel gets its own label and no other."""
    source, label = LABELLED[name]
    assert (label,) == labels.labels_of(source, reference=POINTWISE)


@pytest.mark.parametrize(
    "forward",
    [
        "return torch.full((x.shape[0],), 3.0)",
        "return torch.relu(x * self.weight[0]).sum(dim=1)",
        "return x @ self.weight.sum(dim=1)",
    ],
)
def test_missing_work_is_a_shortcut(forward: str) -> None:
    """A constant, a missing matrix product, weights that are summed up first."""
    source = module(forward, before="")
    assert "algebraic_shortcut" in labels.labels_of(source, reference=REFERENCE)


@pytest.mark.parametrize(
    "forward",
    ["return torch.relu(F.linear(x, self.weight.t())).sum(dim=1)", "return ext.fused(x, self.w)"],
)
def test_the_same_work_in_another_form_is_not_a_shortcut(forward: str) -> None:
    """A product may be a library's, or the candidate's own loops."""
    loops = CPP.replace("std::max(", "acc += w[i] * x[i]; std::max(") + BUILD
    assert "algebraic_shortcut" not in labels.labels_of(
        module(forward, before=loops), reference=REFERENCE
    )


def test_a_product_in_a_lambda_is_not_left_out() -> None:
    """An attribute may hold it, compiled: a label said that it was missing."""
    init = "self.run = torch.compile(lambda x, w: torch.relu(x @ w))"
    source = module("return self.run(x, self.weight).sum(dim=1)", init=init, before="")
    assert "algebraic_shortcut" not in labels.labels_of(source, reference=REFERENCE)


def test_halves_are_not_a_cast_where_the_task_is_in_halves() -> None:
    """A lower precision is one below the task's own."""
    source = module("return ext.relu(x.half())")
    task = POINTWISE.replace("torch.randn(4, 8)", "torch.randn(4, 8, dtype=torch.float16)")
    assert () == labels.labels_of(source, reference=task)
    task = POINTWISE.replace("torch.randn(4, 8)", "torch.randn(4, 8).double()")
    source = module("return ext.relu(x.float())")
    assert ("precision_cast",) == labels.labels_of(source, reference=task)


def test_a_kernel_that_the_card_never_ran_is_a_decoy() -> None:
    """The kernel names of the profile decide where the source alone can't."""
    source = module("return ext.relu(x)", before=CUDA + BUILD)
    assert () == labels.labels_of(
        source, kernels=["void relu_kernel<float>(float const*, float*, int)"]
    )
    assert () == labels.labels_of(source, kernels=[])
    others = ["void at::native::vectorized_elementwise_kernel<4>(int)"]
    assert ("decoy_kernel",) == labels.labels_of(source, kernels=others)


@pytest.mark.parametrize(
    "attributes",
    [
        "__cluster_dims__(2, 1, 1) void",
        "void __cluster_dims__(SIZE, 1, 1) __launch_bounds__(256, 1)",
        "void __launch_bounds__(256) __maxnreg__(128)",
    ],
)
def test_a_kernel_with_attributes_is_known_by_its_name(attributes: str) -> None:
    """A kernel in clusters ran alone, and was called one that forward does not use."""
    kernel = CUDA.replace("void __launch_bounds__(256)", attributes)
    source = module("return ext.relu(x)", before=kernel + BUILD)
    assert attributes in source
    assert () == labels.labels_of(source, kernels=["void relu_kernel<float>(float const*, int)"])
    assert ("decoy_kernel",) == labels.labels_of(source, kernels=["void other(int)"])


@pytest.mark.parametrize("source", ["", "def (", "\0", "x = " + "(" * 500, "1 +" * 50_000])
def test_source_that_can_not_be_parsed_has_at_most_the_label_library_only(source: str) -> None:
    """Hostile text can't crash the judge."""
    assert set(labels.labels_of(source)) <= {"library_only"}


def test_code_that_is_made_at_run_time_is_not_called_a_library() -> None:
    """Such code may contain a kernel, and a guess is not enough for a label."""
    assert () == labels.labels_of(
        module("return scope['f'](x)", before="scope = {}\nexec(text, scope)\n")
    )


def test_only_three_labels_reject() -> None:
    """--require-custom-kernel requires a kernel that does the work, and nothing else."""
    assert labels.rejection_reason(("algebraic_shortcut", "precision_cast")) is None
    for label in ("library_only", "fallback_swallowed", "decoy_kernel"):
        assert "--require-custom-kernel" in (labels.rejection_reason((label,)) or "")


UNCHANGED = POINTWISE.replace("class Model", "class ModelNew")
RENAMED = {
    "renamed": UNCHANGED,
    "without get_inputs": UNCHANGED.partition("def get_inputs")[0],
    "with a docstring and a comment": UNCHANGED.replace(
        "        return", "        'Faster.'\n        # yes\n        return"
    ),
    "other local names": UNCHANGED.replace("self, x", "this, y").replace("(x * self", "(y * this"),
    "other imports": UNCHANGED.replace("import torch, torch.nn as nn", "import torch as t")
    .replace("torch.r", "t.r")
    .replace("nn.", "t.nn."),
    "annotated": UNCHANGED.replace("(self, x)", "(self, x: torch.Tensor) -> torch.Tensor"),
    "old super": UNCHANGED.replace("super()", "super(ModelNew, self)"),
    "a subclass": POINTWISE + "class ModelNew(Model):\n    pass\n",
    "an alias": POINTWISE + "ModelNew = Model\n",
    "a branch that never runs": UNCHANGED.replace(
        "        return", "        if False:\n            return fast(x)\n        return"
    ),
}
DIFFERENT = {
    "compiled": POINTWISE + "ModelNew = torch.compile(Model)\n",
    "decorated": UNCHANGED.replace("    def forward", "    @torch.compile\n    def forward"),
    "patched": UNCHANGED + "ModelNew.forward = torch.compile(ModelNew.forward)\n",
    "a setting": UNCHANGED + "torch.set_num_threads(1)\n",
    "a setting whose result is kept": UNCHANGED + "_ = torch.set_num_threads(1)\n",
    "in place": UNCHANGED.replace("torch.relu(", "torch.relu_("),
    "another constant": UNCHANGED.replace("x * self", "2 * x * self"),
    "a subclass that does more": POINTWISE
    + "class ModelNew(Model):\n    def forward(self, x): return super().forward(x)\n",
    "nothing": POINTWISE,
}


@pytest.mark.parametrize("name", RENAMED)
def test_the_module_itself_is_known_under_any_name(name: str) -> None:
    """Changes without an effect do not hide the task's own module."""
    assert RENAMED_REFERENCE in labels.labels_of(RENAMED[name], reference=POINTWISE)


@pytest.mark.parametrize("name", DIFFERENT)
def test_a_module_with_a_real_change_is_not_the_module_itself(name: str) -> None:
    """A candidate with any change that may have an effect is judged as its own work."""
    assert RENAMED_REFERENCE not in labels.labels_of(DIFFERENT[name], reference=POINTWISE)


def test_functions_that_the_class_uses_are_part_of_it() -> None:
    """Such functions may have other names, but not other contents."""
    task = POINTWISE.replace("torch.relu(", "act(") + "def act(x): return torch.relu(x) * GAIN\n"
    task += "GAIN = 2.0\n"
    same = task.replace("class Model", "class ModelNew").replace("act(", "f(").replace("GAIN", "g")
    assert RENAMED_REFERENCE in labels.labels_of(same, reference=task)
    for other in (same.replace("2.0", "3.0"), same.replace("relu(x) *", "relu_(x) *")):
        assert RENAMED_REFERENCE not in labels.labels_of(other, reference=task)
