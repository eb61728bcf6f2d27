"""Reductions, softmax and norms in terms of the graph's operations.

The conventions are those of `elementwise`: torch's names and argument names.
"""

from __future__ import annotations

import math

from actors.agents.recipes.ir.elementwise import GraphFunction, apply, as_float, as_tensor, clamp
from actors.agents.recipes.ir.graph import OperationGraph, UnsupportedOperationError
from actors.agents.recipes.ir.shape_inference import integers
from actors.agents.recipes.ir.tensor_views import (
    TensorView,
    identity_view,
    is_identity_view,
    materialized,
    reshaped_view,
    split_dims,
    visible_shape,
)

DimsArgument = int | tuple[int, ...] | list[int] | None


def normalized_dims(graph: OperationGraph, tensor: TensorView, dim: object) -> tuple[int, ...]:
    """The dimensions that `dim` names, as non-negative visible ones; all of them for None."""
    rank = len(tensor.groups)
    if dim is None or dim in ((), []):
        return tuple(range(rank))
    dims = dim if isinstance(dim, tuple | list) else (dim,)
    if not all(isinstance(d, int) and -rank <= d < rank for d in dims):
        raise UnsupportedOperationError("a dimension that is not in the tensor")
    return tuple(sorted({int(d) % rank for d in dims}))


def reduce_tensor(
    graph: OperationGraph, op: str, input: object, dim: object = None, keepdim: bool = False
) -> TensorView:
    """The reduction `op` over visible dimensions: over all node dimensions in their groups."""
    tensor = as_tensor(graph, input)
    if graph[tensor.node].is_mask:
        raise UnsupportedOperationError("a reduction of comparisons, which counts in integers")
    dims = normalized_dims(graph, tensor, dim)
    inner = tuple(d for a in dims for d in tensor.groups[a])
    node = graph.reduce(op, as_float(graph, tensor.node), inner)
    groups = tuple(group for a, group in enumerate(tensor.groups) if keepdim or a not in dims)
    return TensorView(node=node, groups=groups)


def length(graph: OperationGraph, input: object, dim: object) -> int:
    """How many numbers a reduction over `dim` combines into one."""
    tensor = as_tensor(graph, input)
    return math.prod(visible_shape(graph, tensor)[a] for a in normalized_dims(graph, tensor, dim))


def sum(
    graph: OperationGraph, input: object, dim: DimsArgument = None, keepdim: bool = False
) -> TensorView:
    return reduce_tensor(graph, "sum", input, dim, keepdim)


def mean(
    graph: OperationGraph, input: object, dim: DimsArgument = None, keepdim: bool = False
) -> TensorView:
    total = reduce_tensor(graph, "sum", input, dim, keepdim)
    return apply(graph, "div", total, length(graph, input, dim))


def amax(
    graph: OperationGraph, input: object, dim: DimsArgument = None, keepdim: bool = False
) -> TensorView:
    return reduce_tensor(graph, "max", input, dim, keepdim)


def amin(
    graph: OperationGraph, input: object, dim: DimsArgument = None, keepdim: bool = False
) -> TensorView:
    return reduce_tensor(graph, "min", input, dim, keepdim)


def extremum(op: str) -> GraphFunction:
    def function(
        graph: OperationGraph, input: object, dim: object = None, keepdim: bool = False
    ) -> object:
        if isinstance(dim, TensorView):
            return apply(graph, "maximum" if op == "max" else "minimum", input, dim)
        value = reduce_tensor(graph, op, input, dim, keepdim)
        return value if dim is None else (value, None)  # the reader has PyTorch find the indices

    return function


def var(
    graph: OperationGraph,
    input: object,
    dim: DimsArgument = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: int | None = None,
) -> TensorView:
    degrees = int(unbiased) if correction is None else correction
    count = length(graph, input, dim) - degrees
    if count <= 0:
        raise UnsupportedOperationError("a variance of too few numbers")
    centred = apply(graph, "sub", input, mean(graph, input, dim, True))
    total = reduce_tensor(graph, "sum", apply(graph, "mul", centred, centred), dim, keepdim)
    return apply(graph, "div", total, count)


def std(
    graph: OperationGraph,
    input: object,
    dim: DimsArgument = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: int | None = None,
) -> TensorView:
    spread = var(graph, input, dim, unbiased, keepdim, correction=correction)
    return apply(graph, "sqrt", spread)


def norm(
    graph: OperationGraph,
    input: object,
    p: object = 2,
    dim: DimsArgument = None,
    keepdim: bool = False,
) -> TensorView:
    if p in (2, 2.0, "fro", None):
        squares = apply(graph, "mul", input, input)
        return apply(graph, "sqrt", reduce_tensor(graph, "sum", squares, dim, keepdim))
    size = apply(graph, "abs", input)
    if p == 1:
        return reduce_tensor(graph, "sum", size, dim, keepdim)
    if p == math.inf:
        return reduce_tensor(graph, "max", size, dim, keepdim)
    raise UnsupportedOperationError(f"a norm of order {p}")


def vector_norm(
    graph: OperationGraph,
    x: object,
    ord: object = 2,
    dim: DimsArgument = None,
    keepdim: bool = False,
) -> TensorView:
    return norm(graph, x, ord, dim, keepdim)


def normalize(
    graph: OperationGraph, input: object, p: float = 2.0, dim: int = 1, eps: float = 1e-12
) -> TensorView:
    return apply(graph, "div", input, clamp(graph, norm(graph, input, p, dim, True), eps))


def logsumexp(
    graph: OperationGraph, input: object, dim: DimsArgument, keepdim: bool = False
) -> TensorView:
    peak = apply(graph, "finite_or_zero", amax(graph, input, dim, True))
    total = sum(graph, apply(graph, "exp", apply(graph, "sub", input, peak)), dim, True)
    out = apply(graph, "add", apply(graph, "log", total), peak)
    return out if keepdim else reduce_tensor(graph, "sum", out, dim, False)


def exponentials(
    graph: OperationGraph, input: object, dim: DimsArgument
) -> tuple[TensorView, TensorView]:
    """The input minus its maximum, and the sum of the exponentials of that."""
    shifted = apply(graph, "sub", input, amax(graph, input, dim, True))
    return shifted, sum(graph, apply(graph, "exp", shifted), dim, True)


def softmax(graph: OperationGraph, input: object, dim: int, _stacklevel: int = 3) -> TensorView:
    shifted, total = exponentials(graph, input, dim)
    return apply(graph, "div", apply(graph, "exp", shifted), total)


def log_softmax(graph: OperationGraph, input: object, dim: int, _stacklevel: int = 3) -> TensorView:
    shifted, total = exponentials(graph, input, dim)
    return apply(graph, "sub", shifted, apply(graph, "log", total))


def softmin(graph: OperationGraph, input: object, dim: int) -> TensorView:
    return softmax(graph, apply(graph, "neg", input), dim)


def standardised(
    graph: OperationGraph, input: TensorView, dims: DimsArgument, eps: float
) -> TensorView:
    """(input - mean) / sqrt(variance + eps) over `dims`."""
    spread = var(graph, input, dims, correction=0, keepdim=True)
    scale = apply(graph, "rsqrt", apply(graph, "add", spread, eps))
    centred = apply(graph, "sub", input, mean(graph, input, dims, True))
    return apply(graph, "mul", centred, scale)


def scale_and_shift(
    graph: OperationGraph, out: TensorView, weight: object, bias: object
) -> TensorView:
    """out * weight + bias, each left out where it is None."""
    if weight is not None:
        out = apply(graph, "mul", out, weight)
    return out if bias is None else apply(graph, "add", out, bias)


def trailing_dims(
    graph: OperationGraph, input: object, shape: object
) -> tuple[TensorView, tuple[int, ...]]:
    """The tensor, and its last dimensions if they have this shape; raises if they have another."""
    tensor = as_tensor(graph, input)
    sizes = integers((shape,))
    if sizes != visible_shape(graph, tensor)[len(tensor.groups) - len(sizes) :]:
        raise UnsupportedOperationError("a normalised shape that is not the input's")
    rank = len(tensor.groups)
    return tensor, tuple(range(rank - len(sizes), rank))


def layer_norm(
    graph: OperationGraph,
    input: object,
    normalized_shape: object,
    weight: object = None,
    bias: object = None,
    eps: float = 1e-5,
) -> TensorView:
    tensor, dims = trailing_dims(graph, input, normalized_shape)
    return scale_and_shift(graph, standardised(graph, tensor, dims, eps), weight, bias)


def rms_norm(
    graph: OperationGraph,
    input: object,
    normalized_shape: object,
    weight: object = None,
    eps: float | None = None,
) -> TensorView:
    tensor, dims = trailing_dims(graph, input, normalized_shape)
    square = mean(graph, apply(graph, "mul", tensor, tensor), dims, True)
    floor = 1.1920928955078125e-07 if eps is None else eps
    scale = apply(graph, "rsqrt", apply(graph, "add", square, floor))
    return scale_and_shift(graph, apply(graph, "mul", tensor, scale), weight, None)


def per_channel(graph: OperationGraph, parameter: object, rank: int) -> object:
    """A parameter [C] as [C, 1, 1, ...], which broadcasts along dimension 1 of `rank`."""
    if parameter is None:
        return None
    tensor = as_tensor(graph, parameter)
    return reshaped_view(graph, tensor, (*visible_shape(graph, tensor), *(1,) * (rank - 2)))


def group_norm(
    graph: OperationGraph,
    input: object,
    num_groups: int,
    weight: object = None,
    bias: object = None,
    eps: float = 1e-5,
) -> TensorView:
    tensor = as_tensor(graph, input)
    shape = visible_shape(graph, tensor)
    if len(shape) < 2 or shape[1] % num_groups:
        raise UnsupportedOperationError("a group norm whose groups do not divide the channels")
    rank = len(shape)
    if not is_identity_view(graph, tensor):
        tensor = identity_view(graph, materialized(graph, tensor))
    halves = tuple((num_groups, n // num_groups) if d == 1 else (n,) for d, n in enumerate(shape))
    finer = identity_view(graph, split_dims(graph, tensor, halves).node)
    out = standardised(graph, finer, tuple(range(2, rank + 1)), eps)
    joined = ((0,), (1, 2), *((d,) for d in range(3, rank + 1)))
    back = TensorView(node=out.node, groups=joined)
    return scale_and_shift(
        graph, back, per_channel(graph, weight, rank), per_channel(graph, bias, rank)
    )


def instance_norm(
    graph: OperationGraph,
    input: object,
    running_mean: object = None,
    running_var: object = None,
    weight: object = None,
    bias: object = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> TensorView:
    if running_mean is not None or not use_input_stats:
        raise UnsupportedOperationError("an instance norm with running statistics")
    tensor = as_tensor(graph, input)
    rank = len(tensor.groups)
    out = standardised(graph, tensor, tuple(range(2, rank)), eps)
    return scale_and_shift(
        graph, out, per_channel(graph, weight, rank), per_channel(graph, bias, rank)
    )


def batch_norm(
    graph: OperationGraph,
    input: object,
    running_mean: object,
    running_var: object,
    weight: object = None,
    bias: object = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> TensorView:
    if training or running_mean is None or running_var is None:
        raise UnsupportedOperationError(
            "a batch norm in training mode, which changes its buffers at every call"
        )
    rank = len(as_tensor(graph, input).groups)
    spread = apply(graph, "add", per_channel(graph, running_var, rank), eps)
    scale: object = apply(graph, "rsqrt", spread)
    if weight is not None:
        scale = apply(graph, "mul", scale, per_channel(graph, weight, rank))
    centred = apply(graph, "sub", input, per_channel(graph, running_mean, rank))
    return scale_and_shift(graph, centred, scale, per_channel(graph, bias, rank))


REDUCTION_FUNCTIONS: dict[str, GraphFunction] = {
    "sum": sum,
    "mean": mean,
    "amax": amax,
    "amin": amin,
    "max": extremum("max"),
    "min": extremum("min"),
    "var": var,
    "std": std,
    "norm": norm,
    "vector_norm": vector_norm,
    "normalize": normalize,
    "logsumexp": logsumexp,
    "softmax": softmax,
    "log_softmax": log_softmax,
    "softmin": softmin,
    "layer_norm": layer_norm,
    "rms_norm": rms_norm,
    "group_norm": group_norm,
    "instance_norm": instance_norm,
    "batch_norm": batch_norm,
}
