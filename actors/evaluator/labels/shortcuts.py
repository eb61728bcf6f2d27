"""Whether a candidate leaves out work that its task contains.  A heuristic, not a verdict.

A right result by less work is not wrong, but it shows a property of the task, not a better kernel:
an output that is the same for all inputs, a matrix product that a sum of weights replaces.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from actors.evaluator.labels.candidate_structure import CandidateStructure
from actors.evaluator.labels.syntax import calls_in, identifiers, last_name, variables_read

CONTRACTIONS = frozenset(
    [
        *("matmul", "mm", "bmm", "addmm", "baddbmm", "linear", "einsum", "bilinear", "mv", "dot"),
        *("Linear", "Bilinear", "scaled_dot_product_attention", "MultiheadAttention", "tensordot"),
        *("addbmm", "addmv", "chain_matmul", "inner", "LSTM", "GRU", "RNN", "LSTMCell", "GRUCell"),
    ]
)
CONVOLUTION = re.compile(r"^(?:[Cc]onv(?:_?[Tt]ranspose)?[123]d|convolution)$")
# Bounded repeats: the text may be hostile.
PRODUCT_SUM = re.compile(
    r"\+=[^;]{0,300}\*|=[^;=]{0,100}\+[^;=]{0,100}\*|=[^;=]{0,100}\*[^;=]{0,100}\+|"
    r"fma|mma|dot|gemm|matmul|linear|conv|dp4a|xdl|inner_product|\bmm\b|addmm|einsum"
)
SUMS = frozenset(["sum", "mean"])
DESCRIBES = frozenset(["shape", "dtype", "device", "ndim", "layout", "is_cuda"])
LIKE = frozenset(
    [
        *("size", "dim", "numel", "len", "stride", "is_contiguous", "new_zeros", "new_ones"),
        *("zeros_like", "ones_like", "empty_like", "full_like", "new_full", "new_empty"),
    ]
)


def leaves_out_work(structure: CandidateStructure, task: CandidateStructure) -> bool:
    """Whether work of the task is left out: its inputs, its products, or their order."""
    if structure.forward is None or task.forward is None or structure.runs_dynamic_code:
        return False
    if _ignores(structure.forward) and not _ignores(task.forward):
        return True
    if not _contracts(task):
        return False
    python = _contracts(structure)
    if not python and not any(PRODUCT_SUM.search(text) for text in _texts(structure)):
        return True
    # Weights summed up before the product instead of products summed up after it.
    return bool(_sums(task)) and _sums_weights(structure) and not _sums_weights(task)


def _texts(structure: CandidateStructure) -> Iterator[str]:
    yield from structure.native_texts
    for name in structure.kernel_names:
        for definition in structure.definitions.get(name, []):
            yield ast.unparse(definition)
    if structure.has_kernel and not structure.native_texts and not structure.kernel_names:
        yield "dot"  # another library may compute anything


def _ignores(forward: ast.FunctionDef) -> bool:
    """Whether forward reads no element of any input; a shape is not an element."""
    given = {argument.arg for argument in forward.args.args} - {"self"}
    if forward.args.vararg is not None:
        given.add(forward.args.vararg.arg)
    return bool(given) and not any(given & _read(part) for part in forward.body)


def _read(tree: ast.AST) -> set[str]:
    if isinstance(tree, ast.Attribute) and tree.attr in DESCRIBES:
        return set()
    if isinstance(tree, ast.Call) and last_name(tree.func) in LIKE:
        return set()
    own = {tree.id} if isinstance(tree, ast.Name) else set()
    return own.union(*(_read(part) for part in ast.iter_child_nodes(tree)))


def _contracts(structure: CandidateStructure) -> bool:
    names = {
        name for part in (structure.tree, *structure.forward_path) for name in identifiers(part)
    }
    # A lambda may be held by an attribute: `self.run = torch.compile(lambda x, w: x @ w)`.
    lambdas = [node for node in ast.walk(structure.tree) if isinstance(node, ast.Lambda)]
    operators = any(
        isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.MatMult)
        for part in (*structure.forward_path, *lambdas)
        for node in ast.walk(part)
    )
    return operators or bool(names & CONTRACTIONS) or any(map(CONVOLUTION.match, names))


def _sums(structure: CandidateStructure) -> list[ast.Call]:
    return [
        call
        for part in structure.forward_path
        for call in calls_in(part)
        if last_name(call.func) in SUMS
    ]


def _sums_weights(structure: CandidateStructure) -> bool:
    """Whether a parameter alone is summed up: `self.weight.sum(0)`."""
    for call in calls_in(structure.tree):
        if last_name(call.func) in SUMS and isinstance(call.func, ast.Attribute):
            read = variables_read(call) - {"torch"}
            if read == {"self"} and {"weight", "w", "W"} & identifiers(call):
                return True
    return False
