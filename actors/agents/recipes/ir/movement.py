"""Views, slices and pools in terms of the graph's operations.

The conventions are those of `elementwise`: torch's names and argument names.
"""

from __future__ import annotations

import math

from actors.agents.recipes.ir.elementwise import GraphFunction, apply, as_float, as_tensor
from actors.agents.recipes.ir.graph import OperationGraph, PoolGeometry, UnsupportedOperationError
from actors.agents.recipes.ir.memory_orders import is_moved
from actors.agents.recipes.ir.reductions import amax, mean
from actors.agents.recipes.ir.shape_inference import integers
from actors.agents.recipes.ir.tensor_views import (
    DimSegment,
    TensorView,
    identity_view,
    is_identity_view,
    materialized,
    rebuild_with_dims,
    reshaped_view,
    slice_node,
    visible_shape,
)


def reshape(graph: OperationGraph, input: object, *shape: object) -> TensorView:
    tensor = as_tensor(graph, input)
    sizes = list(integers(shape))
    count = math.prod(visible_shape(graph, tensor))
    if -1 in sizes:
        known = -math.prod(sizes)
        if known <= 0 or count % known:
            raise UnsupportedOperationError("a reshape that does not fit")
        sizes[sizes.index(-1)] = count // known
    return reshaped_view(graph, tensor, tuple(sizes))


def flatten(
    graph: OperationGraph, input: object, start_dim: int = 0, end_dim: int = -1
) -> TensorView:
    tensor = as_tensor(graph, input)
    shape = visible_shape(graph, tensor)
    first, last = start_dim % len(shape), end_dim % len(shape)
    middle = math.prod(shape[first : last + 1])
    return reshaped_view(graph, tensor, (*shape[:first], middle, *shape[last + 1 :]))


def unsqueeze(graph: OperationGraph, input: object, dim: int) -> TensorView:
    tensor = as_tensor(graph, input)
    shape = visible_shape(graph, tensor)
    at = dim % (len(shape) + 1)
    sizes = graph[tensor.node].sizes
    used = {d for group in tensor.groups for d in group}
    start = tensor.groups[at - 1][-1] + 1 if at else 0
    stop = tensor.groups[at][0] if at < len(shape) else len(sizes)
    for d in range(start, stop):
        if d not in used and sizes[d] == 1:  # a hidden dimension becomes visible
            groups = (*tensor.groups[:at], (d,), *tensor.groups[at:])
            return TensorView(node=tensor.node, groups=groups)
    index = materialized(graph, tensor)
    segments: list[DimSegment] = [(d, (n,)) for d, n in enumerate(shape)]
    segments.insert(at, (-1, (1,)))
    return identity_view(graph, rebuild_with_dims(graph, index, segments))


def squeeze(graph: OperationGraph, input: object, dim: int | None = None) -> TensorView:
    tensor = as_tensor(graph, input)
    shape = visible_shape(graph, tensor)
    chosen = range(len(shape)) if dim is None else (dim % len(shape),)
    groups = tuple(
        group for d, group in enumerate(tensor.groups) if not (d in chosen and shape[d] == 1)
    )
    return TensorView(node=tensor.node, groups=groups)


def slice_tensor(graph: OperationGraph, tensor: TensorView, index: object) -> TensorView:
    """`tensor[index]` for integers, slices with step 1, None and `...`, without a copy."""
    parts = list(index) if isinstance(index, tuple) else [index]
    if not all(part is None or part is ... or isinstance(part, int | slice) for part in parts):
        raise UnsupportedOperationError("an index that is a tensor")
    rank = len(visible_shape(graph, tensor))
    named = sum(1 for part in parts if part is not None and part is not ...)
    if ... in parts:
        at = parts.index(...)
        parts[at : at + 1] = [slice(None)] * (rank - named)
    else:
        parts += [slice(None)] * (rank - named)
    out = tensor
    dim = 0
    for part in parts:
        if part is None:
            out = unsqueeze(graph, out, dim)
        elif isinstance(part, int):
            size = visible_shape(graph, out)[dim]
            out = squeeze(graph, narrow(graph, out, dim, part % size, 1), dim)
            continue
        else:
            if not isinstance(part, slice):
                raise UnsupportedOperationError("an index that is not known")
            start, stop, step = part.indices(visible_shape(graph, out)[dim])
            if step != 1:
                raise UnsupportedOperationError("a slice with a step")
            out = narrow(graph, out, dim, start, stop - start)
        dim += 1
    return out


def narrow(graph: OperationGraph, input: object, dim: int, start: int, length: int) -> TensorView:
    tensor = as_tensor(graph, input)
    shape = visible_shape(graph, tensor)
    dim %= len(shape)
    if (start, length) == (0, shape[dim]):
        return tensor
    if length < 1 or start + length > shape[dim]:
        raise UnsupportedOperationError("a slice outside of the tensor")
    index = tensor.node if is_identity_view(graph, tensor) else materialized(graph, tensor)
    if is_moved(graph[index]):  # its memory is not contiguous, and a view of ours would copy all
        sizes = (*shape[:dim], length, *shape[dim + 1 :])
        text = f"{{0}}.narrow({dim}, {start}, {length})"
        return identity_view(graph, graph.torch_node(text, (index,), sizes))
    return identity_view(graph, slice_node(graph, as_float(graph, index), dim, start, length))


def select(graph: OperationGraph, input: object, dim: int, index: int) -> TensorView:
    tensor = as_tensor(graph, input)
    size = visible_shape(graph, tensor)[dim]
    return squeeze(graph, narrow(graph, tensor, dim, index % size, 1), dim)


def unbind(graph: OperationGraph, input: object, dim: int = 0) -> tuple[TensorView, ...]:
    size = visible_shape(graph, as_tensor(graph, input))[dim]
    return tuple(select(graph, input, dim, index) for index in range(size))


def chunk(
    graph: OperationGraph, input: object, chunks: int, dim: int = 0
) -> tuple[TensorView, ...]:
    size = visible_shape(graph, as_tensor(graph, input))[dim]
    return split(graph, input, -(-size // chunks), dim)


def split(
    graph: OperationGraph, tensor: object, split_size_or_sections: object, dim: int = 0
) -> tuple[TensorView, ...]:
    size = visible_shape(graph, as_tensor(graph, tensor))[dim]
    sections = split_size_or_sections
    if isinstance(sections, int):
        step = sections
        sections = [min(step, size - at) for at in range(0, size, step)]
    if not isinstance(sections, tuple | list):
        raise UnsupportedOperationError("a split into sizes that are not known")
    out = []
    at = 0
    for length in sections:
        out.append(narrow(graph, tensor, dim, at, int(length)))
        at += int(length)
    return tuple(out)


def glu(graph: OperationGraph, input: object, dim: int = -1) -> TensorView:
    value, gate = chunk(graph, input, 2, dim)
    return apply(graph, "mul", value, apply(graph, "sigmoid", gate))


def prelu(graph: OperationGraph, input: object, weight: object) -> TensorView:
    tensor, slope = as_tensor(graph, input), as_tensor(graph, weight)
    rank = len(tensor.groups)
    if rank > 2 and visible_shape(graph, slope) != (1,):
        slope = reshaped_view(graph, slope, (*visible_shape(graph, slope), *(1,) * (rank - 2)))
    above = apply(graph, "gt", tensor, 0.0)
    return apply(graph, "where", above, tensor, apply(graph, "mul", tensor, slope))


def pool_argument(value: object, rank: int) -> tuple[int, int]:
    """A pooling argument for two dimensions; in one dimension the first is trivial."""
    if isinstance(value, tuple | list) and len(value) == 1:
        value = value[0]
    if isinstance(value, int):
        return (value, value) if rank == 2 else (-1, value)
    if isinstance(value, tuple | list) and len(value) == rank == 2:
        return (int(value[0]), int(value[1]))
    raise UnsupportedOperationError("a pooling argument that is not one or two numbers")


def pool_tensor(
    graph: OperationGraph,
    op: str,
    input: object,
    size: object,
    stride: object,
    pad: object,
    rank: int,
) -> TensorView:
    """A pool over the last `rank` dimensions; a pool over one has height 1."""
    tensor = as_tensor(graph, input)
    shape = visible_shape(graph, tensor)
    if len(shape) < rank + 1:
        raise UnsupportedOperationError("a pool over too few dimensions")
    high, wide = pool_argument(size, rank), pool_argument(size if stride is None else stride, rank)
    edge = pool_argument(pad, rank)
    window = PoolGeometry(
        size=(1, high[1]) if rank == 1 else high,
        stride=(1, wide[1]) if rank == 1 else wide,
        pad=(0, edge[1]) if rank == 1 else edge,
    )
    node = as_float(
        graph, materialized(graph, tensor) if not is_identity_view(graph, tensor) else tensor.node
    )
    if rank == 1:
        with_height = unsqueeze(graph, identity_view(graph, node), len(shape) - 1)
        out = identity_view(graph, graph.pool(op, with_height.node, window))
        return squeeze(graph, out, len(shape) - 1)
    return identity_view(graph, graph.pool(op, node, window))


def pool_3d(
    graph: OperationGraph, op: str, input: object, size: object, stride: object, pad: object
) -> TensorView:
    """A pool over three dimensions: over the last two, and then down the first of them."""
    sizes, steps = three_numbers(size), three_numbers(size if stride is None else stride)
    edges = three_numbers(pad)
    planes = pool_tensor(graph, op, input, sizes[1:], steps[1:], edges[1:], 2)
    *outer, depth, height, width = visible_shape(graph, planes)
    if not outer:
        raise UnsupportedOperationError("a pool over too few dimensions")
    columns = identity_view(graph, graph.view(planes.node, (*outer, depth, height * width)))
    down = pool_tensor(graph, op, columns, (sizes[0], 1), (steps[0], 1), (edges[0], 0), 2)
    shape = (*outer, visible_shape(graph, down)[-2], height, width)
    return identity_view(graph, graph.view(down.node, shape))


def three_numbers(value: object) -> tuple[int, int, int]:
    """A pooling argument for three dimensions."""
    if isinstance(value, int):
        return (value, value, value)
    if isinstance(value, tuple | list) and len(value) == 3:
        return (int(value[0]), int(value[1]), int(value[2]))
    raise UnsupportedOperationError("a pooling argument that is not one or three numbers")


def pool_of_rank(
    graph: OperationGraph,
    op: str,
    input: object,
    size: object,
    stride: object,
    pad: object,
    rank: int,
) -> TensorView:
    """A pool over the last one, two or three dimensions."""
    if rank == 3:
        return pool_3d(graph, op, input, size, stride, pad)
    return pool_tensor(graph, op, input, size, stride, pad, rank)


def window_count(size: object, rank: int) -> int:
    """The number of places under a pooling window."""
    if rank == 3:
        return math.prod(three_numbers(size))
    high, wide = pool_argument(size, rank)
    return wide * (high if rank == 2 else 1)


def max_pool(rank: int) -> GraphFunction:
    def function(
        graph: OperationGraph,
        input: object,
        kernel_size: object,
        stride: object = None,
        padding: object = 0,
        dilation: object = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> TensorView:
        if dilation not in (1, (1,), (1, 1), (1, 1, 1)) or ceil_mode or return_indices:
            raise UnsupportedOperationError("a max pool with dilation, ceil_mode or indices")
        return pool_of_rank(graph, "pool_max", input, kernel_size, stride, padding, rank)

    return function


def avg_pool(rank: int) -> GraphFunction:
    def function(
        graph: OperationGraph,
        input: object,
        kernel_size: object,
        stride: object = None,
        padding: object = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> TensorView:
        padded = padding not in (0, (0,), (0, 0), (0, 0, 0))
        if ceil_mode or (padded and not count_include_pad) or divisor_override is not None:
            raise UnsupportedOperationError("an average pool with ceil_mode or counts of its own")
        total = pool_of_rank(graph, "pool_sum", input, kernel_size, stride, padding, rank)
        return apply(graph, "div", total, window_count(kernel_size, rank))

    return function


def adaptive(rank: int, kind: GraphFunction) -> GraphFunction:
    def function(graph: OperationGraph, input: object, output_size: object) -> object:
        sizes = output_size if isinstance(output_size, tuple | list) else (output_size,)
        if set(sizes) != {1}:
            raise UnsupportedOperationError("an adaptive pool to more than one place")
        return kind(graph, input, tuple(range(-rank, 0)), True)

    return function


MOVEMENT_FUNCTIONS: dict[str, GraphFunction] = {
    "view": reshape,
    "reshape": reshape,
    "flatten": flatten,
    "unsqueeze": unsqueeze,
    "squeeze": squeeze,
    "narrow": narrow,
    "chunk": chunk,
    "select": select,
    "unbind": unbind,
    "split": split,
    "glu": glu,
    "prelu": prelu,
    **{f"max_pool{rank}d": max_pool(rank) for rank in (1, 2, 3)},
    **{f"avg_pool{rank}d": avg_pool(rank) for rank in (1, 2, 3)},
    **{f"adaptive_avg_pool{rank}d": adaptive(rank, mean) for rank in (1, 2, 3)},
    **{f"adaptive_max_pool{rank}d": adaptive(rank, amax) for rank in (1, 2, 3)},
}
