"""Tensors as the forward sees them, over nodes that may have finer dimensions.

A `TensorView` is a node, and for each visible dimension the group of node dimensions that it is
made of.  A node dimension in no group is hidden, and has size 1.  Examples:

    the program's tensor            node                  groups                     visible shape
    x                               x [N, C, H, W]        (0,), (1,), (2,), (3,)     [N, C, H, W]
    x.mean(1), x [N, M]             div [N, 1]            (0,)                       [N]
    group norm's result, 4 groups   mul [N, 4, C/4, HW]   (0,), (1, 2), (3,)         [N, C, HW]

Without the finer node, a reshape would end the loop before it.  With it, reductions, norms and the
operations that follow them share one loop.
"""

from __future__ import annotations

import math

import msgspec

from actors.agents.recipes.ir.graph import (
    ELEMENTWISE,
    REDUCTIONS,
    OperationGraph,
    Shape,
    UnsupportedOperationError,
    broadcast,
    contiguous,
)

DimSegment = tuple[int, Shape]  # a node dimension (-1: a new one), and the sizes that it becomes


class TensorView(msgspec.Struct, frozen=True, kw_only=True):
    """A node, and for each visible dimension the node dimensions that it is made of."""

    node: int
    groups: tuple[tuple[int, ...], ...]


def identity_view(graph: OperationGraph, node: int) -> TensorView:
    """The view whose visible dimensions are the node's own."""
    return TensorView(node=node, groups=tuple((d,) for d in range(len(graph[node].sizes))))


def visible_shape(graph: OperationGraph, tensor: TensorView) -> Shape:
    """The shape that the program sees: the product of each group's sizes."""
    sizes = graph[tensor.node].sizes
    return tuple(math.prod(sizes[d] for d in group) for group in tensor.groups)


def is_identity_view(graph: OperationGraph, tensor: TensorView) -> bool:
    """Whether visible and node dimensions are the same."""
    return tensor.groups == tuple((d,) for d in range(len(graph[tensor.node].sizes)))


def materialized(graph: OperationGraph, tensor: TensorView) -> int:
    """A node whose own shape is the visible one: the tensor's node, or a view of its memory."""
    if is_identity_view(graph, tensor):
        return tensor.node
    node, shape = graph[tensor.node], visible_shape(graph, tensor)
    if node.op != "view":
        return graph.view(tensor.node, shape)
    if all(len(group) == 1 for group in tensor.groups):  # only dimensions of size 1 are hidden
        strides = tuple(node.strides[d] for (d,) in tensor.groups)
        return graph.view(node.args[0], shape, strides, node.offset)
    if node.strides == contiguous(node.sizes):
        return graph.view(tensor.node, shape)
    return graph.torch_node(f"{{0}}.reshape({shape})", (tensor.node,), shape)


def reshaped_view(graph: OperationGraph, tensor: TensorView, shape: Shape) -> TensorView:
    """The tensor with another shape of equal size: by other groups where possible, else a view.

    Example: a node [8, 4, 6] as [8, 24] gets the groups (0,), (1, 2); as [16, 12] it needs a view.
    """
    if math.prod(shape) != math.prod(visible_shape(graph, tensor)):
        raise UnsupportedOperationError("a view of another size")
    sizes = graph[tensor.node].sizes
    groups: list[tuple[int, ...]] = []
    dim = 0
    for want in shape:
        start, have = dim, 1
        while have < want and dim < len(sizes):
            have *= sizes[dim]
            dim += 1
        if have != want:
            break
        if want == 1 and dim < len(sizes) and sizes[dim] == 1:
            dim += 1  # a hidden dimension of size 1 becomes visible
        groups.append(tuple(range(start, dim)))
    else:
        if all(groups) and all(n == 1 for n in sizes[dim:]):
            return TensorView(node=tensor.node, groups=tuple(groups))
    return identity_view(graph, graph.view(materialized(graph, tensor), shape))


def split_dims(graph: OperationGraph, tensor: TensorView, sizes: tuple[Shape, ...]) -> TensorView:
    """The tensor with each visible dimension split into the given sizes, which form its group.

    Example: [N, C] with sizes ((N,), (4, C/4)) becomes a node [N, 4, C/4], groups (0,), (1, 2).
    A dimension that is made of several already must be split into the same sizes.
    """
    node = graph[tensor.node]
    segments: list[DimSegment] = []
    groups: list[tuple[int, ...]] = []
    place = 0
    owner = {group[0]: i for i, group in enumerate(tensor.groups)}
    inner = {d for group in tensor.groups for d in group[1:]}
    for d, size in enumerate(node.sizes):
        if d in inner:
            continue
        if d not in owner:
            segments.append((d, (size,)))
            place += 1
            continue
        group, wanted = tensor.groups[owner[d]], sizes[owner[d]]
        if len(group) == 1:
            segments.append((d, wanted))
        elif tuple(node.sizes[g] for g in group) == wanted:
            segments.extend((g, (node.sizes[g],)) for g in group)
        else:
            raise UnsupportedOperationError("a dimension that is split in two ways")
        groups.append(tuple(range(place, place + len(wanted))))
        place += len(wanted)
    return TensorView(node=rebuild_with_dims(graph, tensor.node, segments), groups=tuple(groups))


def rebuild_with_dims(graph: OperationGraph, index: int, segments: list[DimSegment]) -> int:
    """The node with dimensions split or added, by rebuilding its operands down to the leaves.

    Example: [N, C] with segments (0, (N,)), (1, (4, C/4)) becomes [N, 4, C/4].
    """
    node = graph[index]
    if node.op == "const" or all(d >= 0 and len(sizes) == 1 for d, sizes in segments):
        return index
    shape = tuple(n for _, sizes in segments for n in sizes)
    if node.op in ELEMENTWISE:
        operands = [
            rebuild_with_dims(graph, arg, rebuild_operand(graph, arg, node.sizes, segments))
            for arg in node.args
        ]
        made = graph.apply(node.op, *operands)
        if graph[made].sizes == shape:
            return made
    elif node.op in REDUCTIONS:
        return rebuild_reduction(graph, index, segments)
    if node.op == "view":
        strides: list[int] = []
        for d, sizes in segments:
            step = node.strides[d] if d >= 0 else 0
            strides.extend(step * math.prod(sizes[i + 1 :]) for i in range(len(sizes)))
        return graph.view(node.args[0], shape, tuple(strides), node.offset)
    return graph.view(index, shape)


def slice_node(graph: OperationGraph, index: int, dim: int, start: int, length: int) -> int:
    """A piece of the node along a dimension, by slicing its operands down to the leaves."""
    node = graph[index]
    if node.op == "const" or node.sizes[dim] == 1:
        return index
    if node.op in ELEMENTWISE:
        missing_dims = [len(node.sizes) - len(graph[arg].sizes) for arg in node.args]
        operands = [
            slice_node(graph, arg, dim - missing, start, length) if dim >= missing else arg
            for arg, missing in zip(node.args, missing_dims, strict=True)
        ]
        return graph.apply(node.op, *operands)
    strides = node.strides if node.op == "view" else contiguous(node.sizes)
    offset = node.offset if node.op == "view" else 0
    sizes = (*node.sizes[:dim], length, *node.sizes[dim + 1 :])
    return graph.view(index, sizes, strides, offset + start * strides[dim])


def rebuild_operand(
    graph: OperationGraph, arg: int, shape: Shape, segments: list[DimSegment]
) -> list[DimSegment]:
    """The segments of an operand that broadcasts to `shape`, when the result gets `segments`."""
    sizes = graph[arg].sizes
    missing = len(shape) - len(sizes)
    out: list[DimSegment] = []
    for d, wanted in segments:
        if d < 0:
            if out:
                out.append((-1, (1,)))
        elif d >= missing:
            out.append((d - missing, wanted if sizes[d - missing] != 1 else (1,) * len(wanted)))
    return out


def rebuild_reduction(graph: OperationGraph, index: int, segments: list[DimSegment]) -> int:
    """The reduction over a rebuilt operand; reduced dimensions keep their size in the operand."""
    node = graph[index]
    sizes = graph[node.args[0]].sizes
    below: list[DimSegment] = []
    dims: list[int] = []
    place = 0
    for d, wanted in segments:
        if d in node.dims:
            below.append((d, (sizes[d], *wanted[1:])))
            dims.append(place)
        else:
            below.append((d, wanted))
        place += len(wanted)
    return graph.reduce(node.op, rebuild_with_dims(graph, node.args[0], below), tuple(dims))


def broadcast_views(
    graph: OperationGraph, tensors: list[TensorView]
) -> tuple[list[int], tuple[tuple[int, ...], ...]]:
    """Nodes that broadcast together as the tensors' visible shapes do, and the result's groups.

    The tensor with the most visible dimensions that has finer ones is the frame; the others are
    laid out in its node's dimensions.
    """
    shape = broadcast(*(visible_shape(graph, tensor) for tensor in tensors))
    framed = [
        t
        for t in tensors
        if not is_identity_view(graph, t) and not is_single_number(graph, t, len(shape))
    ]
    if not framed:
        nodes = [tensor.node for tensor in tensors]
        return nodes, tuple((d,) for d in range(len(shape)))
    frame = max(framed, key=lambda tensor: len(tensor.groups))
    extra = len(shape) - len(frame.groups)
    inner = graph[frame.node].sizes
    nodes = [
        tensor.node
        if tensor is frame or is_single_number(graph, tensor, len(shape))
        else align_to(graph, tensor, frame, inner)
        for tensor in tensors
    ]
    groups = tuple((d,) for d in range(extra)) + tuple(
        tuple(d + extra for d in group) for group in frame.groups
    )
    return nodes, groups


def is_single_number(graph: OperationGraph, tensor: TensorView, rank: int) -> bool:
    """Whether it is one number, which broadcasts to any dimensions."""
    sizes = graph[tensor.node].sizes
    return math.prod(sizes) == 1 and len(sizes) <= rank


def align_to(graph: OperationGraph, tensor: TensorView, frame: TensorView, inner: Shape) -> int:
    """A node of the tensor that broadcasts with the frame's node, whose sizes are `inner`.

    Example: a bias [C] for a frame [N, 4, C/4] with groups (0,), (1, 2) becomes [4, C/4].
    """
    same = graph[tensor.node].sizes
    if len(tensor.groups) == len(frame.groups) and len(same) == len(inner):
        wide = [n != 1 for n in visible_shape(graph, tensor)]
        if all(
            not w or a == b for w, a, b in zip(wide, tensor.groups, frame.groups, strict=True)
        ) and all(1 in (a, b) or a == b for a, b in zip(same, inner, strict=True)):
            return tensor.node
    index = materialized(graph, tensor)
    sizes = graph[index].sizes
    missing = len(frame.groups) - len(sizes)
    segments: list[DimSegment] = [(d, (sizes[d],)) for d in range(max(0, -missing))]
    owner = {d: (i, d == group[0]) for i, group in enumerate(frame.groups) for d in group}
    for d in range(len(inner)):
        visible, first = owner.get(d, (-1, True))
        if 0 <= visible < missing:
            continue
        if visible < 0:
            if segments:
                segments.append((-1, (1,)))
        elif first:
            group = frame.groups[visible]
            size = sizes[visible - missing]
            wanted = tuple(inner[g] for g in group)
            if size == 1:
                wanted = (1,) * len(group)
            elif math.prod(wanted) == 1:
                wanted = (size, *wanted[1:])
            segments.append((visible - missing, wanted))
    return rebuild_with_dims(graph, index, segments)
