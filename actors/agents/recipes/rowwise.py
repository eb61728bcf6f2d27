"""What reductions, softmax, norms and losses mean in terms of the graph's operations.

Same conventions as `operations`: torch's names and argument names.
"""

from __future__ import annotations

import math

from actors.agents.recipes.frames import Tensor, plain, seen, split, stored, view, whole
from actors.agents.recipes.graph import Graph, Unknown
from actors.agents.recipes.operations import Function, apply, as_float, clamp, lift
from actors.agents.recipes.shapes import integers

Dims = int | tuple[int, ...] | list[int] | None


def axes(graph: Graph, tensor: Tensor, dim: object) -> tuple[int, ...]:
    """Visible dimensions, none negative; all of them for None."""
    rank = len(tensor.groups)
    if dim is None or dim in ((), []):
        return tuple(range(rank))
    dims = dim if isinstance(dim, tuple | list) else (dim,)
    if not all(isinstance(d, int) and -rank <= d < rank for d in dims):
        raise Unknown("a dimension that is not in the tensor")
    return tuple(sorted({int(d) % rank for d in dims}))


def reduced(
    graph: Graph, op: str, input: object, dim: object = None, keepdim: bool = False
) -> Tensor:
    tensor = lift(graph, input)
    if graph[tensor.node].mask:
        raise Unknown("a reduction of comparisons, which counts in integers")
    dims = axes(graph, tensor, dim)
    inner = tuple(d for a in dims for d in tensor.groups[a])
    node = graph.reduce(op, as_float(graph, tensor.node), inner)
    groups = tuple(group for a, group in enumerate(tensor.groups) if keepdim or a not in dims)
    return Tensor(node=node, groups=groups)


def length(graph: Graph, input: object, dim: object) -> int:
    tensor = lift(graph, input)
    return math.prod(seen(graph, tensor)[a] for a in axes(graph, tensor, dim))


def sum(graph: Graph, input: object, dim: Dims = None, keepdim: bool = False) -> Tensor:
    return reduced(graph, "sum", input, dim, keepdim)


def mean(graph: Graph, input: object, dim: Dims = None, keepdim: bool = False) -> Tensor:
    total = reduced(graph, "sum", input, dim, keepdim)
    return apply(graph, "div", total, length(graph, input, dim))


def amax(graph: Graph, input: object, dim: Dims = None, keepdim: bool = False) -> Tensor:
    return reduced(graph, "max", input, dim, keepdim)


def amin(graph: Graph, input: object, dim: Dims = None, keepdim: bool = False) -> Tensor:
    return reduced(graph, "min", input, dim, keepdim)


def extreme(op: str) -> Function:
    def function(graph: Graph, input: object, dim: object = None, keepdim: bool = False) -> object:
        if isinstance(dim, Tensor):
            return apply(graph, "maximum" if op == "max" else "minimum", input, dim)
        value = reduced(graph, op, input, dim, keepdim)
        return value if dim is None else (value, None)  # the places are not known

    return function


def var(
    graph: Graph,
    input: object,
    dim: Dims = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: int | None = None,
) -> Tensor:
    taken = int(unbiased) if correction is None else correction
    count = length(graph, input, dim) - taken
    if count <= 0:
        raise Unknown("a variance of too few numbers")
    centred = apply(graph, "sub", input, mean(graph, input, dim, True))
    total = reduced(graph, "sum", apply(graph, "mul", centred, centred), dim, keepdim)
    return apply(graph, "div", total, count)


def std(
    graph: Graph,
    input: object,
    dim: Dims = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: int | None = None,
) -> Tensor:
    spread = var(graph, input, dim, unbiased, keepdim, correction=correction)
    return apply(graph, "sqrt", spread)


def norm(
    graph: Graph, input: object, p: object = 2, dim: Dims = None, keepdim: bool = False
) -> Tensor:
    if p in (2, 2.0, "fro", None):
        squares = apply(graph, "mul", input, input)
        return apply(graph, "sqrt", reduced(graph, "sum", squares, dim, keepdim))
    size = apply(graph, "abs", input)
    if p == 1:
        return reduced(graph, "sum", size, dim, keepdim)
    if p == math.inf:
        return reduced(graph, "max", size, dim, keepdim)
    raise Unknown(f"a norm of order {p}")


def vector_norm(
    graph: Graph, x: object, ord: object = 2, dim: Dims = None, keepdim: bool = False
) -> Tensor:
    return norm(graph, x, ord, dim, keepdim)


def normalize(
    graph: Graph, input: object, p: float = 2.0, dim: int = 1, eps: float = 1e-12
) -> Tensor:
    return apply(graph, "div", input, clamp(graph, norm(graph, input, p, dim, True), eps))


def logsumexp(graph: Graph, input: object, dim: Dims, keepdim: bool = False) -> Tensor:
    peak = apply(graph, "finite_or_zero", amax(graph, input, dim, True))
    total = sum(graph, apply(graph, "exp", apply(graph, "sub", input, peak)), dim, True)
    out = apply(graph, "add", apply(graph, "log", total), peak)
    return out if keepdim else reduced(graph, "sum", out, dim, False)


def exponentials(graph: Graph, input: object, dim: Dims) -> tuple[Tensor, Tensor]:
    """The input less its largest, and the sum of exp of that."""
    shifted = apply(graph, "sub", input, amax(graph, input, dim, True))
    return shifted, sum(graph, apply(graph, "exp", shifted), dim, True)


def softmax(graph: Graph, input: object, dim: int, _stacklevel: int = 3) -> Tensor:
    shifted, total = exponentials(graph, input, dim)
    return apply(graph, "div", apply(graph, "exp", shifted), total)


def log_softmax(graph: Graph, input: object, dim: int, _stacklevel: int = 3) -> Tensor:
    shifted, total = exponentials(graph, input, dim)
    return apply(graph, "sub", shifted, apply(graph, "log", total))


def softmin(graph: Graph, input: object, dim: int) -> Tensor:
    return softmax(graph, apply(graph, "neg", input), dim)


def standardised(graph: Graph, input: Tensor, dims: Dims, eps: float) -> Tensor:
    spread = var(graph, input, dims, correction=0, keepdim=True)
    scale = apply(graph, "rsqrt", apply(graph, "add", spread, eps))
    centred = apply(graph, "sub", input, mean(graph, input, dims, True))
    return apply(graph, "mul", centred, scale)


def affine(graph: Graph, out: Tensor, weight: object, bias: object) -> Tensor:
    if weight is not None:
        out = apply(graph, "mul", out, weight)
    return out if bias is None else apply(graph, "add", out, bias)


def trailing(graph: Graph, input: object, shape: object) -> tuple[Tensor, tuple[int, ...]]:
    tensor = lift(graph, input)
    sizes = integers((shape,))
    if sizes != seen(graph, tensor)[len(tensor.groups) - len(sizes) :]:
        raise Unknown("a normalised shape that is not the input's")
    rank = len(tensor.groups)
    return tensor, tuple(range(rank - len(sizes), rank))


def layer_norm(
    graph: Graph,
    input: object,
    normalized_shape: object,
    weight: object = None,
    bias: object = None,
    eps: float = 1e-5,
) -> Tensor:
    tensor, dims = trailing(graph, input, normalized_shape)
    return affine(graph, standardised(graph, tensor, dims, eps), weight, bias)


def rms_norm(
    graph: Graph,
    input: object,
    normalized_shape: object,
    weight: object = None,
    eps: float | None = None,
) -> Tensor:
    tensor, dims = trailing(graph, input, normalized_shape)
    square = mean(graph, apply(graph, "mul", tensor, tensor), dims, True)
    floor = 1.1920928955078125e-07 if eps is None else eps
    scale = apply(graph, "rsqrt", apply(graph, "add", square, floor))
    return affine(graph, apply(graph, "mul", tensor, scale), weight, None)


def channelled(graph: Graph, parameter: object, rank: int) -> object:
    """A per-channel parameter [C], seen as [C, 1, 1, ...] behind dimension 1."""
    if parameter is None:
        return None
    tensor = lift(graph, parameter)
    return view(graph, tensor, (*seen(graph, tensor), *(1,) * (rank - 2)))


def group_norm(
    graph: Graph,
    input: object,
    num_groups: int,
    weight: object = None,
    bias: object = None,
    eps: float = 1e-5,
) -> Tensor:
    tensor = lift(graph, input)
    shape = seen(graph, tensor)
    if len(shape) < 2 or shape[1] % num_groups:
        raise Unknown("a group norm whose groups do not divide the channels")
    rank = len(shape)
    if not plain(graph, tensor):
        tensor = whole(graph, stored(graph, tensor))
    halves = tuple((num_groups, n // num_groups) if d == 1 else (n,) for d, n in enumerate(shape))
    finer = whole(graph, split(graph, tensor, halves).node)
    out = standardised(graph, finer, tuple(range(2, rank + 1)), eps)
    joined = ((0,), (1, 2), *((d,) for d in range(3, rank + 1)))
    back = Tensor(node=out.node, groups=joined)
    return affine(graph, back, channelled(graph, weight, rank), channelled(graph, bias, rank))


def instance_norm(
    graph: Graph,
    input: object,
    running_mean: object = None,
    running_var: object = None,
    weight: object = None,
    bias: object = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    if running_mean is not None or not use_input_stats:
        raise Unknown("an instance norm with running statistics")
    tensor = lift(graph, input)
    rank = len(tensor.groups)
    out = standardised(graph, tensor, tuple(range(2, rank)), eps)
    return affine(graph, out, channelled(graph, weight, rank), channelled(graph, bias, rank))


def batch_norm(
    graph: Graph,
    input: object,
    running_mean: object,
    running_var: object,
    weight: object = None,
    bias: object = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    if training or running_mean is None or running_var is None:
        raise Unknown("a batch norm in training mode, which changes its buffers at every call")
    rank = len(lift(graph, input).groups)
    spread = apply(graph, "add", channelled(graph, running_var, rank), eps)
    scale: object = apply(graph, "rsqrt", spread)
    if weight is not None:
        scale = apply(graph, "mul", scale, channelled(graph, weight, rank))
    centred = apply(graph, "sub", input, channelled(graph, running_mean, rank))
    return affine(graph, centred, scale, channelled(graph, bias, rank))


FUNCTIONS: dict[str, Function] = {
    "sum": sum,
    "mean": mean,
    "amax": amax,
    "amin": amin,
    "max": extreme("max"),
    "min": extreme("min"),
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
