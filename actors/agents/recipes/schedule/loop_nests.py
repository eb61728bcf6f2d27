"""The loop nest of a region: its domain with dimensions merged, and each tensor's strides.

Adjacent dimensions are merged if every tensor steps through them as through one.  A kernel loops
over the dimensions that are left.

Example: `x + bias` with x float32[8, 32, 56, 56] and bias float32[32, 1, 1] has the sizes
(8, 32, 3136); x has strides (100352, 3136, 1), and bias (0, 1, 0).
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from actors.agents.recipes.ir.graph import (
    OperationGraph,
    Shape,
    UnsupportedOperationError,
    contiguous,
)
from actors.agents.recipes.ir.memory_orders import strides_in_order
from actors.agents.recipes.schedule.fusion import Region, region_inputs
from actors.agents.recipes.schedule.region_orders import loop_order

SHORT_DIMENSION = 64  # a shorter last dimension is merged with its neighbour, where possible
LoopKind = Literal["map", "rows", "columns", "pool"]


class TensorAccess(msgspec.Struct, frozen=True, kw_only=True):
    """A tensor in memory as a loop sees it."""

    node: int  # the graph's node
    base: int  # the node whose memory it is: the node itself unless that is a view
    offset: int
    strides: Shape  # along the loop nest's dimensions, in elements; 0 where it repeats
    period: int = 0  # > 0: along the last dimension it repeats after so many numbers


class LoopNest(msgspec.Struct, frozen=True, kw_only=True):
    """The dimensions of a loop nest, outermost first."""

    kind: LoopKind
    sizes: Shape
    reduced: tuple[bool, ...]
    loads: tuple[TensorAccess, ...]
    stores: tuple[TensorAccess, ...]
    pool_reads: tuple[TensorAccess, ...] = ()  # what a pool reads under its pooling window

    @property
    def outer_dims(self) -> tuple[int, ...]:
        """Dimensions that are not reduced, without the one that is vectorised."""
        last = len(self.sizes) - 1
        return tuple(d for d in range(len(self.sizes)) if not self.reduced[d] and d != last)

    @property
    def inner_dims(self) -> tuple[int, ...]:
        """Reduced dimensions, without the one that is vectorised."""
        last = len(self.sizes) - 1
        return tuple(d for d in range(len(self.sizes)) if self.reduced[d] and d != last)

    @property
    def reduced_dims(self) -> tuple[int, ...]:
        """Reduced dimensions, the vectorised one included."""
        return tuple(d for d, is_reduced in enumerate(self.reduced) if is_reduced)

    @property
    def width(self) -> int:
        """Length of the vectorised, last dimension."""
        return self.sizes[-1]

    @property
    def units(self) -> int:
        """Independent pieces of work."""
        return math.prod(self.sizes[d] for d in self.outer_dims)

    @property
    def length(self) -> int:
        """How many numbers are reduced into one."""
        return math.prod(n for n, r in zip(self.sizes, self.reduced, strict=True) if r)

    @property
    def volume(self) -> int:
        return math.prod(self.sizes)


def tensor_access(graph: OperationGraph, index: int, rank: int) -> tuple[int, int, list[int]]:
    """Base, offset and strides of a node in memory, aligned to `rank` dimensions."""
    node = graph[index]
    shape = node.sizes
    if node.op == "view":
        base, offset, strides = node.args[0], node.offset, node.strides
    else:
        base, offset = index, 0
        order = graph.orders.get(index)
        strides = contiguous(shape) if order is None else strides_in_order(shape, order)
    moved = [s if n != 1 else 0 for s, n in zip(strides, shape, strict=True)]
    if len(moved) > rank and any(moved[: len(moved) - rank]):
        raise UnsupportedOperationError("a tensor with more dimensions than its loop")
    return base, offset, [0] * (rank - len(moved)) + moved[max(0, len(moved) - rank) :]


def plan_loops(graph: OperationGraph, region: Region) -> LoopNest:
    """The region's loops; for a pool's epilogue, those over its result."""
    rank = len(region.domain)
    order = loop_order(graph, region)
    found = [
        (index, *tensor_access(graph, index, rank)) for index in sorted(domain_reads(graph, region))
    ]
    found += [(index, *tensor_access(graph, index, rank)) for index in region.outputs]
    found += [
        (index, *tensor_access(graph, index, rank)) for index in sorted(pool_inputs(graph, region))
    ]
    reduced = [d - rank in region.dims for d in order]
    rows = [[row[3][d] for d in order] for row in found]
    pooling = region.pool is not None
    sizes, flags, strides = merge_adjacent_dims(
        [region.domain[d] for d in order], reduced, rows, keep_last=pooling
    )
    periods = [0] * len(found)
    if not pooling:
        periods = merge_short_last_dim(sizes, flags, strides)
    accesses = tuple(
        TensorAccess(node=row[0], base=row[1], offset=row[2], strides=tuple(steps), period=period)
        for row, steps, period in zip(found, strides, periods, strict=True)
    )
    taps = len(pool_inputs(graph, region))
    count = len(accesses) - len(region.outputs) - taps
    return LoopNest(
        kind=loop_kind(region, flags),
        sizes=tuple(sizes),
        reduced=tuple(flags),
        loads=accesses[:count],
        stores=accesses[count : count + len(region.outputs)],
        pool_reads=accesses[len(accesses) - taps :],
    )


def loop_kind(region: Region, flags: list[bool]) -> LoopKind:
    """The kind of loop nest: the last dimension of "rows" is reduced, that of "columns" is not."""
    if region.pool is not None:
        return "pool"
    if not any(flags):
        return "map"
    return "rows" if flags[-1] else "columns"


def prologue(graph: OperationGraph, region: Region) -> frozenset[int]:
    """The nodes of a pool's region that are computed on its input."""
    if region.pool is None:
        return frozenset()
    inside = graph.ancestors(graph[region.pool].args)
    return frozenset(node for node in region.nodes if node in inside)


def domain_reads(graph: OperationGraph, region: Region) -> set[int]:
    """The nodes read in the loop over the domain, without those under a pooling window."""
    before = prologue(graph, region)
    pool = frozenset() if region.pool is None else frozenset({region.pool})
    rest = Region(nodes=region.nodes - before - pool, domain=region.domain)
    return region_inputs(graph, rest) - pool


def pool_inputs(graph: OperationGraph, region: Region) -> set[int]:
    """The nodes read under a pooling window: the pool's input, or what its prologue reads."""
    if region.pool is None:
        return set()
    before = prologue(graph, region)
    if not before:
        return set(graph[region.pool].args)
    return region_inputs(graph, Region(nodes=before, domain=region.domain))


def merge_adjacent_dims(
    sizes: list[int], reduced: list[bool], strides: list[list[int]], keep_last: bool
) -> tuple[list[int], list[bool], list[list[int]]]:
    """Sizes, flags and strides without dimensions of size 1, adjacent dimensions merged.

    Two dimensions are merged if both or none are reduced, and all tensors step through them as
    through one.  `keep_last` leaves the last two dimensions as they are: a pool needs them.
    """
    last = len(sizes) - 1
    dims = [d for d, n in enumerate(sizes) if n != 1 or (keep_last and d >= last - 1)]
    if not dims:
        dims = [last] if sizes else []
    out_sizes: list[int] = []
    out_reduced: list[bool] = []
    out: list[list[int]] = [[] for _ in strides]
    for d in dims:
        can_merge = (
            bool(out_sizes)
            and out_reduced[-1] == reduced[d]
            and not (keep_last and d >= last - 1)
            and all(o[-1] == row[d] * sizes[d] for o, row in zip(out, strides, strict=True))
        )
        if can_merge:
            out_sizes[-1] *= sizes[d]
            for o, row in zip(out, strides, strict=True):
                o[-1] = row[d]
        else:
            out_sizes.append(sizes[d])
            out_reduced.append(reduced[d])
            for o, row in zip(out, strides, strict=True):
                o.append(row[d])
    if not out_sizes:
        out_sizes, out_reduced = [1], [False]
        out = [[0] for _ in strides]
    return out_sizes, out_reduced, out


def merge_short_last_dim(
    sizes: list[int], reduced: list[bool], strides: list[list[int]]
) -> list[int]:
    """Merge a short last dimension into the one before it; return each tensor's period.

    A tensor without the dimension before it (a bias of a few channels) is then read periodically.
    A last dimension of four numbers fills no vector; merged with 50 rows it has 200.  This function
    changes its arguments.
    """
    none = [0] * len(strides)
    if len(sizes) < 2 or sizes[-1] >= SHORT_DIMENSION or reduced[-1] != reduced[-2]:
        return none
    periods = []
    for row in strides:
        through = row[-2] == row[-1] * sizes[-1]
        elsewhere = any(step and flag for step, flag in zip(row[:-2], reduced, strict=False))
        if not through and (row[-2:] != [0, 1] or elsewhere):
            return none
        periods.append(0 if through else sizes[-1])
    sizes[-2:] = [sizes[-2] * sizes[-1]]
    reduced[-2:] = [reduced[-1]]
    for row in strides:
        row[-2:] = [row[-1]]
    return periods
