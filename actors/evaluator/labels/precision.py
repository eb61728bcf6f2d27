"""Whether a candidate's source casts to a lower precision than its task's.  A heuristic.

The comparison of outputs is separate: TF32 and halves often pass a task's tolerance.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from actors.evaluator.labels.candidate_structure import CandidateStructure
from actors.evaluator.labels.precision_splits import (
    cast_value,
    has_native_splits,
    has_python_splits,
)
from actors.evaluator.labels.syntax import identifiers, last_name

# A lower rank has fewer bits of mantissa.
PRECISION_RANKS = {
    **dict.fromkeys(["float64", "double", "complex128"], 4),
    **dict.fromkeys(["float32", "float", "complex64"], 3),
    **dict.fromkeys(["tf32"], 2),
    **dict.fromkeys(["float16", "half", "bfloat16"], 1),
    **dict.fromkeys(["float8_e4m3fn", "float8_e5m2", "float8e4nv", "float8e5", "qint8"], 0),
}
TASK_RANK = 3  # float32, where a task names no precision
CASTS = frozenset(["to", "type", "cast", "astype", "asarray", "as_tensor", "tensor", "empty"])
METHODS = frozenset(["half", "bfloat16", "float", "double"])
FAST_MATMUL = frozenset(["high", "medium"])
# Whole products of lower precision: never a part of a split.
FAST = re.compile(r"COMPUTE_32F_FAST|TF32_TENSOR_OP|setAllowTF32\w*\(\s*true")
NATIVE_CASTS = (
    (2, re.compile(r"precision::tf32|__float_to_tf32|cvt\.rna\.tf32|tf32_t\b")),
    (2, FAST),
    (
        1,
        re.compile(r"__float2(?:half|bfloat16)|__float22(?:half2|bfloat162)|__floats2(?:half|bfl)"),
    ),
    (1, re.compile(r"\.(?:to|toType)\(\s*(?:at::|torch::)?(?:kHalf|kBFloat16)")),
    (1, re.compile(r"<\s*(?:at::|c10::)?(?:__half|half|Half|BFloat16|__nv_bfloat16)\s*>\s*\(")),
    (0, re.compile(r"__nv_fp8|kFloat8|Float8_e")),
)
# The text dispatches on the type of its inputs: its casts may apply to half tensors only.
DISPATCH = re.compile(r"AT_DISPATCH\w*(?:HALF|REDUCED|TYPES_AND|_V2)|scalar_type\(\)|\.dtype\(\)")


def has_lower_precision(structure: CandidateStructure, task: CandidateStructure) -> bool:
    """Whether `structure` casts to less than the lowest precision that `task` names."""
    named = [rank for node in ast.walk(task.tree) for rank in _named(node)]
    least = min([TASK_RANK, *named])
    if not any(rank < TASK_RANK for rank in named) and 4 in named:
        least = 4  # a task of doubles permits no lower precision
    return any(rank < least for rank in (*_python(structure), *_native(structure)))


def _named(node: ast.AST) -> Iterator[int]:
    match node:
        case ast.Attribute(value=ast.Name(id="torch" | "tl"), attr=name) if name in PRECISION_RANKS:
            yield PRECISION_RANKS[name]
        case ast.Call(func=ast.Attribute(attr=name)) if name in METHODS:
            yield PRECISION_RANKS[name]
        case _:
            return


def _native(structure: CandidateStructure) -> Iterator[int]:
    for text in structure.native_texts:
        if DISPATCH.search(text):
            continue
        found = [rank for rank, pattern in NATIVE_CASTS if pattern.search(text)]
        if found and not (min(found) > 0 and has_native_splits(text) and not FAST.search(text)):
            yield from found


def _python(structure: CandidateStructure) -> Iterator[int]:
    """Yield the ranks of casts on forward's path, at construction, and at the file's import."""
    for part in (structure.tree, *structure.forward_path):
        is_split = not isinstance(part, ast.Module) and has_python_splits(part)
        for node in _undispatched(part):
            if not (is_split and cast_value(node) is not None):
                yield from _cast(node)


def _undispatched(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes outside of `if x.dtype == …` and outside of inner functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If | ast.IfExp) and "dtype" in identifiers(node.test):
            continue
        if isinstance(node, ast.FunctionDef) and node.name != "__init__":
            continue
        yield node
        yield from _undispatched(node)


def _cast(node: ast.AST) -> Iterator[int]:
    match node:
        case ast.Call(func=ast.Attribute(attr="half" | "bfloat16" | "float" as name), args=[]):
            yield PRECISION_RANKS[name]
        case ast.Call(func=function) if last_name(function) == "autocast":
            yield PRECISION_RANKS["half"]
        case ast.Call(func=function, args=[ast.Constant(value=str() as mode)]) if (
            last_name(function) == "set_float32_matmul_precision" and mode in FAST_MATMUL
        ):
            yield PRECISION_RANKS["tf32"]
        case ast.Call(func=function) if last_name(function) in CASTS:
            arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
            yield from (rank for argument in arguments for rank in _named(argument))
        case ast.Assign(targets=[ast.Attribute(attr="allow_tf32")], value=ast.Constant(value=True)):
            yield PRECISION_RANKS["tf32"]
        case ast.keyword(arg="allow_tf32", value=ast.Constant(value=True)):
            yield PRECISION_RANKS["tf32"]
        case ast.keyword(arg="input_precision", value=ast.Constant(value="tf32")):
            yield PRECISION_RANKS["tf32"]
        case ast.keyword(arg="dtype", value=value):
            yield from _named(value)
        case _:
            return
