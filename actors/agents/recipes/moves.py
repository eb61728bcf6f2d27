"""Views, slices and pooling in terms of the graph: what moves data or looks at it through windows.

Same conventions as `operations`: torch's names and argument names.
"""

from __future__ import annotations

import math

from actors.agents.recipes.frames import (
    Segment,
    Tensor,
    cut,
    plain,
    reframe,
    seen,
    stored,
    view,
    whole,
)
from actors.agents.recipes.graph import Graph, Unknown, Window
from actors.agents.recipes.operations import Function, apply, as_float, lift
from actors.agents.recipes.rowwise import amax, mean
from actors.agents.recipes.shapes import integers


def reshape(graph: Graph, input: object, *shape: object) -> Tensor:
    tensor = lift(graph, input)
    sizes = list(integers(shape))
    count = math.prod(seen(graph, tensor))
    if -1 in sizes:
        known = -math.prod(sizes)
        if known <= 0 or count % known:
            raise Unknown("a reshape that does not fit")
        sizes[sizes.index(-1)] = count // known
    return view(graph, tensor, tuple(sizes))


def flatten(graph: Graph, input: object, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    tensor = lift(graph, input)
    shape = seen(graph, tensor)
    first, last = start_dim % len(shape), end_dim % len(shape)
    middle = math.prod(shape[first : last + 1])
    return view(graph, tensor, (*shape[:first], middle, *shape[last + 1 :]))


def unsqueeze(graph: Graph, input: object, dim: int) -> Tensor:
    tensor = lift(graph, input)
    shape = seen(graph, tensor)
    at = dim % (len(shape) + 1)
    sizes = graph[tensor.node].sizes
    used = {d for group in tensor.groups for d in group}
    start = tensor.groups[at - 1][-1] + 1 if at else 0
    stop = tensor.groups[at][0] if at < len(shape) else len(sizes)
    for d in range(start, stop):
        if d not in used and sizes[d] == 1:  # a hidden dimension shows again
            groups = (*tensor.groups[:at], (d,), *tensor.groups[at:])
            return Tensor(node=tensor.node, groups=groups)
    index = stored(graph, tensor)
    segments: list[Segment] = [(d, (n,)) for d, n in enumerate(shape)]
    segments.insert(at, (-1, (1,)))
    return whole(graph, reframe(graph, index, segments))


def squeeze(graph: Graph, input: object, dim: int | None = None) -> Tensor:
    tensor = lift(graph, input)
    shape = seen(graph, tensor)
    chosen = range(len(shape)) if dim is None else (dim % len(shape),)
    kept = tuple(
        group for d, group in enumerate(tensor.groups) if not (d in chosen and shape[d] == 1)
    )
    return Tensor(node=tensor.node, groups=kept)


def sliced(graph: Graph, tensor: Tensor, index: object) -> Tensor:
    """`tensor[index]` for integers, slices with step 1, None and `...`, without a copy."""
    parts = list(index) if isinstance(index, tuple) else [index]
    if not all(part is None or part is ... or isinstance(part, int | slice) for part in parts):
        raise Unknown("an index that is a tensor")
    rank = len(seen(graph, tensor))
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
            size = seen(graph, out)[dim]
            out = squeeze(graph, narrow(graph, out, dim, part % size, 1), dim)
            continue
        else:
            if not isinstance(part, slice):
                raise Unknown("an index that is not known")
            start, stop, step = part.indices(seen(graph, out)[dim])
            if step != 1:
                raise Unknown("a slice with a step")
            out = narrow(graph, out, dim, start, stop - start)
        dim += 1
    return out


def narrow(graph: Graph, input: object, dim: int, start: int, length: int) -> Tensor:
    tensor = lift(graph, input)
    shape = seen(graph, tensor)
    dim %= len(shape)
    if (start, length) == (0, shape[dim]):
        return tensor
    if length < 1 or start + length > shape[dim]:
        raise Unknown("a slice outside of the tensor")
    index = tensor.node if plain(graph, tensor) else stored(graph, tensor)
    return whole(graph, cut(graph, as_float(graph, index), dim, start, length))


def chunk(graph: Graph, input: object, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    size = seen(graph, lift(graph, input))[dim]
    return split(graph, input, -(-size // chunks), dim)


def split(
    graph: Graph, tensor: object, split_size_or_sections: object, dim: int = 0
) -> tuple[Tensor, ...]:
    size = seen(graph, lift(graph, tensor))[dim]
    sections = split_size_or_sections
    if isinstance(sections, int):
        step = sections
        sections = [min(step, size - at) for at in range(0, size, step)]
    if not isinstance(sections, tuple | list):
        raise Unknown("a split into sizes that are not known")
    out = []
    at = 0
    for length in sections:
        out.append(narrow(graph, tensor, dim, at, int(length)))
        at += int(length)
    return tuple(out)


def glu(graph: Graph, input: object, dim: int = -1) -> Tensor:
    value, gate = chunk(graph, input, 2, dim)
    return apply(graph, "mul", value, apply(graph, "sigmoid", gate))


def prelu(graph: Graph, input: object, weight: object) -> Tensor:
    tensor, slope = lift(graph, input), lift(graph, weight)
    rank = len(tensor.groups)
    if rank > 2 and seen(graph, slope) != (1,):
        slope = view(graph, slope, (*seen(graph, slope), *(1,) * (rank - 2)))
    above = apply(graph, "gt", tensor, 0.0)
    return apply(graph, "where", above, tensor, apply(graph, "mul", tensor, slope))


def pair(value: object, rank: int) -> tuple[int, int]:
    """A pooling argument for two dimensions; in one dimension the first is trivial."""
    if isinstance(value, tuple | list) and len(value) == 1:
        value = value[0]
    if isinstance(value, int):
        return (value, value) if rank == 2 else (-1, value)
    if isinstance(value, tuple | list) and len(value) == rank == 2:
        return (int(value[0]), int(value[1]))
    raise Unknown("a pooling argument that is not one or two numbers")


def pooled(
    graph: Graph, op: str, input: object, size: object, stride: object, pad: object, rank: int
) -> Tensor:
    tensor = lift(graph, input)
    shape = seen(graph, tensor)
    if len(shape) < rank + 1:
        raise Unknown("a pool over too few dimensions")
    high, wide = pair(size, rank), pair(size if stride is None else stride, rank)
    edge = pair(pad, rank)
    window = Window(
        size=(1, high[1]) if rank == 1 else high,
        stride=(1, wide[1]) if rank == 1 else wide,
        pad=(0, edge[1]) if rank == 1 else edge,
    )
    node = as_float(graph, stored(graph, tensor) if not plain(graph, tensor) else tensor.node)
    if rank == 1:
        lifted = unsqueeze(graph, whole(graph, node), len(shape) - 1)
        out = whole(graph, graph.pool(op, lifted.node, window))
        return squeeze(graph, out, len(shape) - 1)
    return whole(graph, graph.pool(op, node, window))


def max_pool(rank: int) -> Function:
    def function(
        graph: Graph,
        input: object,
        kernel_size: object,
        stride: object = None,
        padding: object = 0,
        dilation: object = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Tensor:
        if dilation not in (1, (1,), (1, 1)) or ceil_mode or return_indices:
            raise Unknown("a max pool with dilation, ceil_mode or indices")
        return pooled(graph, "pool_max", input, kernel_size, stride, padding, rank)

    return function


def avg_pool(rank: int) -> Function:
    def function(
        graph: Graph,
        input: object,
        kernel_size: object,
        stride: object = None,
        padding: object = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Tensor:
        padded = padding not in (0, (0,), (0, 0))
        if ceil_mode or (padded and not count_include_pad) or divisor_override is not None:
            raise Unknown("an average pool with ceil_mode or counts of its own")
        total = pooled(graph, "pool_sum", input, kernel_size, stride, padding, rank)
        size = pair(kernel_size, rank)
        return apply(graph, "div", total, size[1] * (size[0] if rank == 2 else 1))

    return function


def adaptive(rank: int, kind: Function) -> Function:
    def function(graph: Graph, input: object, output_size: object) -> object:
        sizes = output_size if isinstance(output_size, tuple | list) else (output_size,)
        if set(sizes) != {1}:
            raise Unknown("an adaptive pool to more than one place")
        return kind(graph, input, tuple(range(-rank, 0)), True)

    return function


FUNCTIONS: dict[str, Function] = {
    "view": reshape,
    "reshape": reshape,
    "flatten": flatten,
    "unsqueeze": unsqueeze,
    "squeeze": squeeze,
    "narrow": narrow,
    "chunk": chunk,
    "split": split,
    "glu": glu,
    "prelu": prelu,
    **{f"max_pool{rank}d": max_pool(rank) for rank in (1, 2)},
    **{f"avg_pool{rank}d": avg_pool(rank) for rank in (1, 2)},
    **{f"adaptive_avg_pool{rank}d": adaptive(rank, mean) for rank in (1, 2, 3)},
    **{f"adaptive_max_pool{rank}d": adaptive(rank, amax) for rank in (1, 2, 3)},
}
