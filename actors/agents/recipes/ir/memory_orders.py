"""The order of a tensor's dimensions in memory, where that is not the order of its shape.

Inputs may be channels last, or heads that a transpose put first.  A kernel that reads and writes
them in their own order needs no copy before it and none behind it.  An order is a guess that costs
a copy where it is wrong: a kernel is given contiguous memory of this order in any case.

    shape [N, C, H, W], channels last in memory: the order is (0, 2, 3, 1), slowest first
"""

from __future__ import annotations

import ast
import re

from actors.agents.recipes.ir.graph import GraphNode, OperationGraph, Shape

Order = tuple[int, ...]  # the dimensions, slowest in memory first

_CONVOLUTION = re.compile(r"(?:conv[23]d|conv_transpose[23]d)\(\{0\}[,)]")
_ATTENTION = re.compile(r"scaled_dot_product_attention\(\{0\},")
_TRANSPOSE = re.compile(r"\{0\}\.transpose\((-?\d+), (-?\d+)\)|torch\.transpose\(\{0\}, (.*)\)")
_PERMUTE = re.compile(r"\{0\}\.permute\((.*)\)|torch\.permute\(\{0\}, (.*)\)")

# Functions whose result is contiguous in PyTorch, whatever they are given; the second ones may also
# return channels last.
_CONTIGUOUS = frozenset(
    {"softmax", "log_softmax", "softmin", "layer_norm", "instance_norm", "logsigmoid"}
)
_CONTIGUOUS_OR_CHANNELS_LAST = frozenset({"rms_norm", "group_norm", "batch_norm"})


def plain_order(rank: int) -> Order:
    """The order of a contiguous tensor."""
    return tuple(range(rank))


def channels_last(rank: int) -> Order:
    """The order of a tensor [N, C, ...] whose channels are next to each other."""
    return (0, *range(2, rank), 1)


def returns_contiguous(function: str, order: Order) -> bool:
    """Whether torch's function returns contiguous memory for operands of this order."""
    return function in _CONTIGUOUS or (
        function in _CONTIGUOUS_OR_CHANNELS_LAST and order != channels_last(len(order))
    )


def inverse_of(order: Order) -> Order:
    """The permutation that undoes this one."""
    return tuple(order.index(dim) for dim in range(len(order)))


def strides_in_order(shape: Shape, order: Order) -> Shape:
    """The strides in elements of a dense tensor with this order."""
    strides = [0] * len(shape)
    step = 1
    for dim in reversed(order):
        strides[dim] = step
        step *= shape[dim]
    return tuple(strides)


def drawn_orders(get_inputs: ast.FunctionDef | None) -> dict[int, Order]:
    """The orders of inputs that `get_inputs` returns as `….permute(0, 3, 1, 2)`, by place."""
    returned = [] if get_inputs is None else [
        node.value for node in ast.walk(get_inputs) if isinstance(node, ast.Return)
    ]  # fmt: skip
    if len(returned) != 1 or not isinstance(returned[0], ast.List | ast.Tuple):
        return {}
    found = {}
    for place, value in enumerate(returned[0].elts):
        match value:
            case ast.Call(func=ast.Attribute(attr="permute"), args=args, keywords=[]):
                dims = [arg.value for arg in args if isinstance(arg, ast.Constant)]
                if sorted(map(str, dims)) == sorted(map(str, range(len(args)))):
                    found[place] = inverse_of(tuple(dims))  # type: ignore[arg-type]
    return found


def library_order(graph: OperationGraph, node: GraphNode) -> Order | None:
    """The order of what PyTorch gives for operands of known orders; None where it is plain."""
    if not node.args or node.shape is None or graph[node.args[0]].shape is None:
        return None
    given, text = graph[node.args[0]], node.text.strip()
    rank = len(given.sizes)
    order = graph.orders.get(node.args[0], plain_order(rank))
    if len(node.sizes) != rank:
        return None
    if _CONVOLUTION.search(text):  # cuDNN and oneDNN give channels last for channels last
        return order if order == channels_last(rank) else None
    if _ATTENTION.search(text):  # for heads that a transpose put first it gives the same
        return order if order == (0, 2, 1, 3) else None
    moved = _moved_dims(text, rank)
    if moved is None:
        return None
    found = tuple(moved.index(dim) for dim in order)
    return found if found != plain_order(rank) else None


def is_moved(node: GraphNode) -> bool:
    """Whether PyTorch makes it by a transpose or permute, or a part of such a tensor."""
    text = node.text.strip()
    is_part = text.startswith("{0}.narrow(")
    return node.op == "torch" and (is_part or bool(_TRANSPOSE.match(text) or _PERMUTE.match(text)))


def _moved_dims(text: str, rank: int) -> Order | None:
    """The permutation that a transpose or permute of operand 0 does; None for other texts."""
    transposed, permuted = _TRANSPOSE.fullmatch(text), _PERMUTE.fullmatch(text)
    if transposed is None and permuted is None:
        return None
    numbers = [int(n) for n in re.findall(r"-?\d+", text.partition("{0}")[2])]
    dims = [n % rank for n in numbers if -rank <= n < rank]
    if len(dims) != len(numbers):
        return None
    if permuted is not None:
        return tuple(dims) if sorted(dims) == list(range(rank)) else None
    if len(dims) != 2:
        return None
    moved = list(range(rank))
    moved[dims[0]], moved[dims[1]] = moved[dims[1]], moved[dims[0]]
    return tuple(moved)
