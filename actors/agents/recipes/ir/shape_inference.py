"""Shapes of operations that stay in PyTorch: matrix products, convolutions, permutations.

A rule takes the operands' shapes and returns the result's.  Without a rule the shape is not known,
and the operations that follow stay in PyTorch too.  Only functions from float32 to float32 have
rules here.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from actors.agents.recipes.ir.graph import Shape, UnsupportedOperationError, broadcast

ShapeRule = Callable[..., Shape]


def integers(values: tuple[object, ...]) -> tuple[int, ...]:
    """The integers of `f(1, 2)` or `f((1, 2))`; raises where one is not known."""
    inner = values[0] if len(values) == 1 and isinstance(values[0], tuple | list) else values
    if not isinstance(inner, tuple | list):
        raise UnsupportedOperationError("a shape that is not known")
    known = tuple(n for n in inner if isinstance(n, int))
    if len(known) != len(inner):
        raise UnsupportedOperationError("a shape that is not known")
    return known


def matmul(input: Shape, other: Shape) -> Shape:
    if not input or not other or input[-1] != other[-2 if len(other) > 1 else -1]:
        raise UnsupportedOperationError("a matrix product of shapes that do not fit")
    if len(input) == 1 or len(other) == 1:
        return input[:-1] + other[:-2] + (other[-1:] if len(other) > 1 else ())
    return (*broadcast(input[:-2], other[:-2]), input[-2], other[-1])


def linear(input: Shape, weight: Shape, bias: object = None) -> Shape:
    return (*input[:-1], weight[0])


def addmm(input: Shape, mat1: Shape, mat2: Shape, beta: float = 1, alpha: float = 1) -> Shape:
    return matmul(mat1, mat2)


def numbers(value: object, rank: int) -> tuple[int, ...]:
    """An argument for each dimension: `3` and `(3,)` are (3, 3) for rank 2."""
    if isinstance(value, int):
        return (value,) * rank
    if isinstance(value, tuple | list) and len(value) in (1, rank):
        values = tuple(int(n) for n in value)
        return values if len(values) == rank else values * rank
    raise UnsupportedOperationError("a convolution's argument that is not a number")


def convolution(
    input: Shape,
    weight: Shape,
    bias: object = None,
    stride: object = 1,
    padding: object = 0,
    dilation: object = 1,
    groups: int = 1,
) -> Shape:
    rank = len(weight) - 2
    if len(input) != rank + 2:
        raise UnsupportedOperationError("a convolution without a batch")
    step, gap = numbers(stride, rank), numbers(dilation, rank)
    if padding == "same":
        return (input[0], weight[0], *input[2:])
    edge = numbers(0 if padding == "valid" else padding, rank)
    sizes = tuple(
        (input[2 + d] + 2 * edge[d] - gap[d] * (weight[2 + d] - 1) - 1) // step[d] + 1
        for d in range(rank)
    )
    return (input[0], weight[0], *sizes)


def transposed_convolution(
    input: Shape,
    weight: Shape,
    bias: object = None,
    stride: object = 1,
    padding: object = 0,
    output_padding: object = 0,
    groups: int = 1,
    dilation: object = 1,
) -> Shape:
    rank = len(weight) - 2
    if len(input) != rank + 2:
        raise UnsupportedOperationError("a convolution without a batch")
    step, edge = numbers(stride, rank), numbers(padding, rank)
    more, gap = numbers(output_padding, rank), numbers(dilation, rank)
    sizes = tuple(
        (input[2 + d] - 1) * step[d] - 2 * edge[d] + gap[d] * (weight[2 + d] - 1) + more[d] + 1
        for d in range(rank)
    )
    return (input[0], weight[1] * groups, *sizes)


def pool(rank: int) -> ShapeRule:
    def rule(
        input: Shape,
        kernel_size: object,
        stride: object = None,
        padding: object = 0,
        dilation: object = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> Shape:
        if return_indices or ceil_mode:
            raise UnsupportedOperationError("a pool with indices or ceil_mode")
        size = numbers(kernel_size, rank)
        step = size if stride is None else numbers(stride, rank)
        edge, gap = numbers(padding, rank), numbers(dilation, rank)
        lead = input[: len(input) - rank]
        return lead + tuple(
            (n + 2 * edge[d] - gap[d] * (size[d] - 1) - 1) // step[d] + 1
            for d, n in enumerate(input[len(lead) :])
        )

    return rule


def adaptive_pool(input: Shape, output_size: object) -> Shape:
    sizes = output_size if isinstance(output_size, tuple | list) else (output_size,)
    if not all(isinstance(n, int) for n in sizes):
        raise UnsupportedOperationError("an adaptive pool to a size that is not known")
    return input[: len(input) - len(sizes)] + integers(tuple(sizes))


def transpose(input: Shape, dim0: int, dim1: int) -> Shape:
    sizes = list(input)
    sizes[dim0], sizes[dim1] = sizes[dim1], sizes[dim0]
    return tuple(sizes)


def permute(input: Shape, *dims: object) -> Shape:
    return tuple(input[d] for d in integers(dims))


def cat(tensors: tuple[Shape, ...], dim: int = 0) -> Shape:
    sizes = list(tensors[0])
    sizes[dim] = sum(shape[dim] for shape in tensors)
    return tuple(sizes)


def same_shape(input: Shape, *args: object, **kwargs: object) -> Shape:
    return input


def expand(input: Shape, *sizes: object) -> Shape:
    wanted = integers(sizes)
    if len(wanted) < len(input) or min(wanted) < -1:
        raise UnsupportedOperationError("an expansion to a shape that is not known")
    missing = len(wanted) - len(input)
    return tuple(n if n != -1 else input[d - missing] for d, n in enumerate(wanted))


def reshape(input: Shape, *shape: object) -> Shape:
    sizes = list(integers(shape))
    if sizes.count(-1) == 1:
        known = -math.prod(sizes)
        if known <= 0 or math.prod(input) % known:
            raise UnsupportedOperationError("a reshape that does not fit")
        sizes[sizes.index(-1)] = math.prod(input) // known
    if math.prod(sizes) != math.prod(input):
        raise UnsupportedOperationError("a reshape that does not fit")
    return tuple(sizes)


def stack(tensors: tuple[Shape, ...], dim: int = 0) -> Shape:
    at = dim % (len(tensors[0]) + 1)
    return (*tensors[0][:at], len(tensors), *tensors[0][at:])


def pad(input: Shape, pad: tuple[int, ...], mode: str = "constant", value: object = None) -> Shape:
    sizes = list(input)
    for place in range(len(pad) // 2):
        sizes[-1 - place] += pad[2 * place] + pad[2 * place + 1]
    return tuple(sizes)


def einsum(equation: str, *operands: Shape) -> Shape:
    if not isinstance(equation, str):
        raise UnsupportedOperationError("an einsum whose equation is not known")
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if not arrow or "." in equation or len(terms) != len(operands):
        raise UnsupportedOperationError("an einsum whose letters are not all there")
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, operands, strict=True):
        sizes |= zip(term, shape, strict=True)
    return tuple(sizes[letter] for letter in right)


def indexing(input: Shape, index: object) -> Shape:
    """The shape of `tensor[index]` for numbers, slices, None and `...`."""
    parts = list(index) if isinstance(index, tuple) else [index]
    named = sum(part is not None and part is not ... for part in parts)
    if parts.count(...) > 1 or named > len(input):
        raise UnsupportedOperationError("an index that does not fit")
    at = parts.index(...) if ... in parts else len(parts)
    parts[at : at + 1] = [slice(None)] * (len(input) - named)
    sizes = list(input)
    out: list[int] = []
    for part in parts:
        if part is None:
            out.append(1)
        elif isinstance(part, slice):
            out.append(len(range(*part.indices(sizes.pop(0)))))
        elif type(part) is int:
            sizes.pop(0)
        else:
            raise UnsupportedOperationError("an index that is a tensor")
    return tuple(out)


def attention(query: Shape, key: Shape, value: Shape, *args: object, **kwargs: object) -> Shape:
    return (*query[:-1], value[-1])


SHAPE_RULES: dict[str, ShapeRule] = {
    "matmul": matmul,
    "mm": matmul,
    "bmm": matmul,
    "mv": matmul,
    "linear": linear,
    "addmm": addmm,
    **{f"conv{rank}d": convolution for rank in (1, 2, 3)},
    **{f"conv_transpose{rank}d": transposed_convolution for rank in (1, 2, 3)},
    **{f"{kind}_pool{rank}d": pool(rank) for kind in ("max", "avg") for rank in (1, 2, 3)},
    **{f"adaptive_{kind}_pool2d": adaptive_pool for kind in ("max", "avg")},
    "transpose": transpose,
    "permute": permute,
    "t": lambda input: tuple(reversed(input)),
    "cat": cat,
    "concat": cat,
    "expand": expand,
    "dropout": same_shape,
    "batch_norm": same_shape,
    "cumsum": same_shape,
    "pow": lambda input, exponent: input,
    "view": reshape,
    "reshape": reshape,
    "stack": stack,
    "pad": pad,
    "einsum": einsum,
    "scaled_dot_product_attention": attention,
    "indexing": indexing,
    "tril": same_shape,
    "triu": same_shape,
    "roll": same_shape,
    "flip": same_shape,
}

# Functions whose result always has memory of its own.
MATRIX_PRODUCTS = frozenset(
    ["matmul", "mm", "bmm", "mv", "linear", "addmm"]
    + [f"conv{kind}{rank}d" for kind in ("", "_transpose") for rank in (1, 2, 3)]
)
