"""Fusion: which nodes share one kernel, and the order of kernels and PyTorch calls.

A region is the nodes of one loop nest: one domain (the widest shape in it), at most one set of
reduced dimensions, at most one pool.  Regions grow greedily, starting from the operands.  Two
regions are not merged if the kernel would need its own result, or loops of another shape.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from actors.agents.recipes.ir.graph import (
    ELEMENTWISE,
    POOLS,
    REDUCTIONS,
    GraphNode,
    OperationGraph,
    Shape,
    UnsupportedOperationError,
    broadcast,
)

Depth = Literal["all", "layers", "single"]


class Region(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes of one kernel."""

    nodes: frozenset[int]
    domain: Shape
    dims: tuple[int, ...] = ()  # the reduced dimensions, counted from the right: -1 is the last
    pool: int | None = None
    outputs: tuple[int, ...] = ()


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of ModelNew's forward: regions, and nodes that PyTorch computes."""

    steps: tuple[Region | int, ...]

    @property
    def regions(self) -> tuple[Region, ...]:
        return tuple(step for step in self.steps if isinstance(step, Region))


def is_fusable(node: GraphNode) -> bool:
    """Whether a kernel of ours can compute it."""
    return node.op in ELEMENTWISE or node.op in REDUCTIONS or node.op in POOLS


class Fusion:
    """Grows the regions of one graph."""

    def __init__(
        self, graph: OperationGraph, results: tuple[int, ...], depth: Depth, careful: bool
    ) -> None:
        self.graph = graph
        self.depth = depth
        self.careful = careful  # do not rely on later users to join a region
        self.live = sorted(graph.ancestors(results))
        self.results = results
        self.region_of: dict[int, int] = {}  # node -> key of its region
        self.regions: dict[int, Region] = {}
        self.users: dict[int, set[int]] = {}
        for index in self.live:
            for arg in graph[index].args:
                self.users.setdefault(arg, set()).add(index)
        for index in self.live:
            if is_fusable(graph[index]):
                self.add(index)

    def add(self, index: int) -> None:
        """Make a region of one node, and merge it with its operands' regions."""
        self.regions[index] = single_node_region(self.graph, index)
        self.region_of[index] = index
        for arg in sorted(self.graph[index].args, reverse=True):
            if arg in self.region_of and self.region_of[arg] != self.region_of[index]:
                self.merge(self.region_of[arg], self.region_of[index])

    def merge(self, left: int, right: int) -> None:
        """Merge two regions if they are one loop nest and no region then needs its own result."""
        if not self.is_allowed_by_depth(self.regions[left], self.regions[right]):
            return
        joined = merged_regions(self.graph, self.regions[left], self.regions[right])
        if joined is None or not self.is_sound(joined):
            return
        before = dict(self.region_of)
        for node in joined.nodes:
            self.region_of[node] = left
        if self.is_circular():
            self.region_of = before
            return
        del self.regions[right]
        self.regions[left] = joined

    def is_allowed_by_depth(self, left: Region, right: Region) -> bool:
        """Whether the depth of fusion allows the two regions in one kernel."""
        if self.depth == "all":
            return True
        if self.depth == "single":
            return not (left.dims or right.dims or left.pool or right.pool)
        origins = {self.graph.origin[n] for n in left.nodes | right.nodes}
        return len(origins) == 1

    def is_sound(self, region: Region) -> bool:
        """Whether the values that are needed outside of it have shapes that its loop can write."""
        needed = {
            node
            for node in region.nodes
            if node in self.results or any(u not in region.nodes for u in self.users.get(node, ()))
        }
        later = {n for n in needed if n not in self.results and not self.is_settled(n, region)}
        if self.careful:
            later = set()
        writable = writable_shapes(self.graph, region)
        return all(self.graph[node].shape in writable for node in needed - later)

    def is_settled(self, node: int, region: Region) -> bool:
        """Whether some user outside can't join the region: it has a region, or is PyTorch's."""
        outside = [u for u in self.users.get(node, ()) if u not in region.nodes]
        return any(u in self.region_of or not is_fusable(self.graph[u]) for u in outside)

    def is_circular(self) -> bool:
        """Whether some region needs its own result."""
        state: dict[int, int] = {}
        below: dict[int, set[int]] = {}
        for index in self.live:
            key = self.region_of.get(index, index)
            below.setdefault(key, set()).update(
                self.region_of.get(arg, arg) for arg in self.graph[index].args
            )
        for keys in below.values():
            keys.discard(-1)

        def visit(key: int) -> bool:
            if state.get(key) == 1:
                return True
            if state.get(key) == 2:
                return False
            state[key] = 1
            found = any(visit(other) for other in below.get(key, ()) if other != key)
            state[key] = 2
            return found

        return any(visit(key) for key in list(below))

    def schedule(self) -> Schedule:
        """The steps in an order in which each follows the steps that it reads from."""
        done = {i for i in self.live if self.graph[i].op in ("leaf", "const")}
        closed = {key: self.with_outputs(region) for key, region in self.regions.items()}
        steps: list[Region | int] = []
        todo: list[tuple[int, Region | int]] = [
            (max(region.nodes), region) for region in closed.values()
        ] + [(i, i) for i in self.live if self.graph[i].op in ("torch", "view")]
        todo.sort(key=lambda item: item[0])
        while todo:
            for _, step in todo:
                needs = region_inputs(self.graph, step) if isinstance(step, Region) else set(
                    self.graph[step].args)  # fmt: skip
                if needs <= done:
                    break
            else:
                raise UnsupportedOperationError("an order in which the parts can run")
            todo = [item for item in todo if item[1] is not step]
            steps.append(step)
            done |= set(step.outputs) if isinstance(step, Region) else {step}
        return Schedule(steps=tuple(steps))

    def with_outputs(self, region: Region) -> Region:
        """The region with its outputs; raises for an output whose shape it can't write."""
        outputs = tuple(
            sorted(
                node
                for node in region.nodes
                if node in self.results
                or any(u not in region.nodes for u in self.users.get(node, ()))
            )
        )
        writable = writable_shapes(self.graph, region)
        if any(self.graph[node].shape not in writable for node in outputs):
            raise UnsupportedOperationError("a value of a shape that its kernel does not write")
        return msgspec.structs.replace(region, outputs=outputs)


def region_inputs(graph: OperationGraph, region: Region) -> set[int]:
    """The nodes that a region reads, without constants."""
    return {
        arg
        for node in region.nodes
        for arg in graph[node].args
        if arg not in region.nodes and graph[arg].op != "const"
    }


def single_node_region(graph: OperationGraph, index: int) -> Region:
    """The region of one node; a reduction's domain is its operand's shape."""
    node = graph[index]
    if node.op in REDUCTIONS:
        domain = graph[node.args[0]].sizes
        dims = tuple(d - len(domain) for d in node.dims)
        return Region(nodes=frozenset({index}), domain=domain, dims=dims)
    pool = index if node.op in POOLS else None
    return Region(nodes=frozenset({index}), domain=node.sizes, pool=pool)


def reduced_shape(region: Region) -> Shape:
    """The domain with the reduced dimensions as size 1."""
    rank = len(region.domain)
    return tuple(1 if d - rank in region.dims else n for d, n in enumerate(region.domain))


def writable_shapes(graph: OperationGraph, region: Region) -> set[Shape]:
    """The shapes that the region's loop can write."""
    if region.pool is not None:
        return {region.domain}
    return {region.domain, reduced_shape(region)}


def can_broadcast_to(shape: Shape, domain: Shape) -> bool:
    """Whether the shape broadcasts to exactly the domain."""
    try:
        return broadcast(shape, domain) == domain
    except UnsupportedOperationError:
        return False


def merged_regions(graph: OperationGraph, left: Region, right: Region) -> Region | None:
    """Two regions as one, or None where they are not one loop nest.  `right` uses `left`."""
    nodes = left.nodes | right.nodes
    if left.pool is not None or right.pool is not None:
        return merged_into_pool(graph, left, right, nodes)
    if left.dims and right.dims and left.dims != right.dims:
        return None
    if not left.dims and not right.dims:
        try:
            return Region(nodes=nodes, domain=broadcast(left.domain, right.domain))
        except UnsupportedOperationError:
            return None
    dims = left.dims or right.dims
    fixed = left if left.dims else right
    other = right if left.dims else left
    if other.dims and other.domain != fixed.domain:
        return None
    if not can_broadcast_to(other.domain, fixed.domain):
        return None
    if not has_adjacent_reduced_dims(fixed.domain, dims):
        return None
    return Region(nodes=nodes, domain=fixed.domain, dims=dims)


def merged_into_pool(
    graph: OperationGraph, left: Region, right: Region, nodes: frozenset[int]
) -> Region | None:
    """A pool's region with a prologue on its input or an epilogue on its result, or None."""
    if left.dims or right.dims or (left.pool is not None and right.pool is not None):
        return None
    if left.pool is not None:  # an epilogue on the pool's result
        if not can_broadcast_to(right.domain, left.domain):
            return None
        return Region(nodes=nodes, domain=left.domain, pool=left.pool)
    if right.pool is None:
        return None
    source = graph[right.pool].args[0]  # a prologue on the pool's input
    if source not in left.nodes or left.domain != graph[source].sizes:
        return None
    return Region(nodes=nodes, domain=right.domain, pool=right.pool)


def has_adjacent_reduced_dims(domain: Shape, dims: tuple[int, ...]) -> bool:
    """Whether only dimensions of size 1 are between the reduced dimensions."""
    between = range(min(dims), max(dims) + 1)
    return math.prod(domain[d] for d in between if d not in dims) == 1


def fuse_graph(graph: OperationGraph, results: tuple[int, ...], depth: Depth) -> Schedule:
    """The schedule at a depth of fusion.

    Raises `UnsupportedOperationError` where the parts have no order, also without reliance on users
    that join later.
    """
    try:
        return Fusion(graph, results, depth, careful=False).schedule()
    except UnsupportedOperationError:
        return Fusion(graph, results, depth, careful=True).schedule()
