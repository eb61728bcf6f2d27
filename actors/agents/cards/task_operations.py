"""What a task computes, from its text: the classes of operations that cards are chosen by.

Pure, and by fixed rules: the names that the module's classes and functions use.  A name that is not
known gives no class, so an unusual module gets fewer cards.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from math import prod

NOT_THE_MODULE = frozenset(["get_inputs", "get_init_inputs"])
# Name of a module or function -> class, the first pattern that matches the whole name.
NAMES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (operation, re.compile(pattern))
    for operation, pattern in (
        ("attention", r"scaled_dot_product_attention|MultiheadAttention|\w*Attention"),
        ("conv", r"[Cc]onv(_?[Tt]ranspose)?[123]d|convolution"),
        (
            "matmul",
            r"Linear|Bilinear|linear|bilinear|matmul|mm|bmm|addmm|baddbmm|addbmm|einsum|mv|addmv|"
            r"tensordot|chain_matmul|outer|LSTM|GRU|RNN|(LSTM|GRU|RNN)Cell",
        ),
        ("softmax", r"(log_)?softmax|(Log)?Softmax2?d?|logsumexp|gumbel_softmax|softmin|Softmin"),
        ("batch-norm", r"(Sync)?BatchNorm[123]?d?|batch_norm"),
        (
            "norm",
            r"(Layer|Group|RMS)Norm|InstanceNorm[123]d|(layer|group|instance|rms)_norm|normalize|"
            r"norm|vector_norm|matrix_norm|LocalResponseNorm",
        ),
        ("loss", r"\w+Loss|\w+_loss|cross_entropy|kl_div|nll_loss|cosine_similarity"),
        ("pool", r"(Max|Avg|LP)Pool[123]d|(max|avg|lp)_pool[123]d|unfold|Unfold"),
        ("scan", r"cum(sum|prod|max|min)|logcumsumexp"),
        (
            "reduction",
            r"sum|mean|amax|amin|max|min|argmax|argmin|prod|var|std|var_mean|"
            r"Adaptive(Max|Avg)Pool[123]d|adaptive_(max|avg)_pool[123]d",
        ),
        (
            "elementwise",
            r"\w*(relu|ReLU)\w*|gelu|GELU|silu|SiLU|sigmoid|Sigmoid|tanh|Tanh|[Hh]ard\w+|softplus|"
            r"Softplus|softsign|Softsign|elu|ELU|selu|SELU|mish|Mish|exp|log|sqrt|clamp|add|mul|"
            r"sub|div|pow|abs|Dropout|dropout|swish",
        ),
    )
)
# The order of likely cost: cards for the first classes come first.
ORDER = (
    *("attention", "recurrence", "conv", "matmul", "depthwise-conv", "pool", "softmax", "norm"),
    *("batch-norm", "loss", "column-reduction", "channel-reduction", "scan", "reduction"),
    *("elementwise", "epilogue"),
)
RECURRENT_LAYER = re.compile(r"LSTM|GRU|RNN|(LSTM|GRU|RNN)Cell")
SHAPE = re.compile(r"\w+\[(\d[\d, ]*)\]")
CROSS_ENTROPY = re.compile(r"cross_entropy|CrossEntropy")
# A row of a module that normalises more than the last dimension: all dimensions but the first.
MANY_DIMENSIONS = 4
MATRIX = 2


def task_operations(source: str, inputs: str = "") -> tuple[str, ...]:
    """Return the classes of operations of a task's source, the likely dearest first.

    `inputs` describes the inputs as the reference does, "float32[64, 1024]"; "": not known.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    shapes = _shapes(inputs)
    rank = max((len(shape) for shape in shapes), default=0)
    found: set[str] = set()
    layers, constants = _own_attributes(tree), _constants(tree)
    for node in _module_nodes(tree):
        if isinstance(node, ast.Call):
            if ast.unparse(node.func) not in layers:
                found |= set(_called(node, rank, constants))
        elif isinstance(node, ast.BinOp | ast.AugAssign):
            found.add("matmul" if isinstance(node.op, ast.MatMult) else "elementwise")
        elif isinstance(node, ast.For) and _is_over_steps(node):
            found.add("recurrence")
    if {"matmul", "softmax"} <= found and _products(tree) > 1:
        found.add("attention")
    if "elementwise" in found and found & {"matmul", "conv"}:
        found.add("epilogue")
    found = _of_shapes(found, shapes)
    return tuple(operation for operation in ORDER if operation in found)


def _of_shapes(found: set[str], shapes: list[list[int]]) -> set[str]:
    """Return the classes that remain when the inputs' shapes are known."""
    matrices = [shape for shape in shapes if len(shape) > 1]
    if "matmul" in found and any(shape[-1] == 1 for shape in matrices):
        found = found - {"matmul"} | {"reduction"}  # a matrix and a vector: bound by its bytes
    if "batch-norm" in found and max(map(len, matrices), default=0) == MATRIX:
        found = found - {"batch-norm"} | {"column-reduction"}  # a matrix' channels are columns
    return found


def longest_row(inputs: str, outputs: str, operations: tuple[str, ...]) -> int | None:
    """Return the elements of the longest row that the task works on; None if it is not known.

    `inputs` and `outputs` are the reference's descriptions, such as "float32[64, 1024]".
    """
    shapes = _shapes(f"{inputs} {outputs}")
    if "attention" in operations:  # [batch, heads, length, size of a head]; else it is not known
        return max((shape[-1] for shape in shapes if len(shape) == MANY_DIMENSIONS), default=None)
    is_norm = "norm" in operations
    rows = [
        prod(shape[1:]) if is_norm and len(shape) >= MANY_DIMENSIONS else shape[-1]
        for shape in shapes
    ]
    return max(rows, default=None)


def _shapes(description: str) -> list[list[int]]:
    """Return the shapes of one dimension or more in a description of tensors."""
    found = SHAPE.findall(description)
    return [[int(length) for length in match.split(",") if length.strip()] for match in found]


def _module_nodes(tree: ast.Module) -> Iterator[ast.AST]:
    for statement in tree.body:
        is_function = (
            isinstance(statement, ast.FunctionDef) and statement.name not in NOT_THE_MODULE
        )
        if is_function or isinstance(statement, ast.ClassDef):
            yield from ast.walk(statement)


def _own_attributes(tree: ast.Module) -> set[str]:
    """Return what a class assigns to itself, "self.conv2d": its call says nothing of its kind."""
    return {
        ast.unparse(target)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Attribute) and isinstance(node.value, ast.Call)
    }


def _constants(tree: ast.Module) -> dict[str, int]:
    """Return the attributes that a class takes from numbers of `get_init_inputs`: "self.dim" -> 1.

    Of several classes that assign an attribute the last one counts.
    """
    known = {
        target.id: statement.value
        for statement in tree.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    values: list[ast.expr] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == "get_init_inputs":
            returned = [each.value for each in ast.walk(node) if isinstance(each, ast.Return)]
            values = next((each.elts for each in returned if isinstance(each, ast.List)), [])
    found: dict[str, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            given = dict(zip([each.arg for each in node.args.args[1:]], values, strict=False))
            for each in ast.walk(node):
                if isinstance(each, ast.Assign) and isinstance(each.value, ast.Name):
                    value = given.get(each.value.id)
                    value = known.get(value.id) if isinstance(value, ast.Name) else value
                    if isinstance(value, ast.Constant) and type(value.value) is int:
                        found |= {ast.unparse(target): value.value for target in each.targets}
    return found


def _called(call: ast.Call, rank: int, constants: Mapping[str, int]) -> Iterator[str]:
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    operation = next((op for op, pattern in NAMES if pattern.fullmatch(name)), None)
    if operation is None:
        return
    if operation == "conv" and _is_depthwise(call):
        yield "depthwise-conv"  # each channel alone: a stencil, and no product of matrices
        return
    yield operation
    if RECURRENT_LAYER.fullmatch(name):
        yield "recurrence"
    if CROSS_ENTROPY.search(name):
        yield "softmax"
    if operation != "reduction":
        return
    dimension = _dimension(call, constants)
    if _is_of_all(call):
        yield "loss"  # one number of a whole tensor
    elif dimension is not None and 0 <= dimension < max(rank - 1, 1):
        yield "column-reduction"


def _is_over_steps(loop: ast.For) -> bool:
    """Whether a loop walks along a tensor's dimension: `for t in range(n): ... x[:, t] ...`."""
    names = {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
    for node in ast.walk(loop):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple):
            used = {part.id for part in node.slice.elts if isinstance(part, ast.Name)}
            if used & names:
                return True
    return False


def _is_depthwise(call: ast.Call) -> bool:
    """Whether a convolution's groups are its input channels: `Conv2d(c, c, 3, groups=c)`."""
    groups = [ast.unparse(keyword.value) for keyword in call.keywords if keyword.arg == "groups"]
    channels = [ast.unparse(each) for each in call.args[:1]]
    channels += [ast.unparse(each.value) for each in call.keywords if each.arg == "in_channels"]
    return bool(groups) and groups == channels[:1] and groups != ["1"]


def _is_of_all(call: ast.Call) -> bool:
    """Whether a reduction names no dimension: `x.mean()`, `torch.mean(x)`."""
    is_torch = isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == "torch"
    return not call.keywords and len(call.args) == int(is_torch)


def _dimension(call: ast.Call, constants: Mapping[str, int]) -> int | None:
    """Return the one dimension that a reduction names as a number; None for several or the last."""
    values = [keyword.value for keyword in call.keywords if keyword.arg in ("dim", "axis")]
    values += call.args
    for value in values:
        if isinstance(value, ast.Constant) and type(value.value) is int:
            return value.value
        if isinstance(value, ast.Attribute) and ast.unparse(value) in constants:
            return constants[ast.unparse(value)]
    return None


def _products(tree: ast.Module) -> int:
    """Return how many matrix products the functions call or write as @."""
    count = 0
    for node in _module_nodes(tree):
        if isinstance(node, ast.BinOp):
            count += isinstance(node.op, ast.MatMult)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            count += node.func.attr in ("matmul", "bmm", "einsum", "baddbmm")
    return count
