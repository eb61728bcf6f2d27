"""Which tensors of a forward keep their own order in memory: between kernels, and around them.

A kernel's loops follow one order.  So a region has an order if all tensors of its full size that it
reads have it.  A tensor that another region reads in its plain order, or that a view is taken of,
is made contiguous as before.  So are results of the forward that PyTorch would return contiguous:
a caller may take views of them.
"""

from __future__ import annotations

from actors.agents.recipes.ir.graph import OperationGraph
from actors.agents.recipes.ir.memory_orders import (
    Order,
    library_order,
    plain_order,
    returns_contiguous,
)
from actors.agents.recipes.schedule.fusion import Region, Schedule, region_inputs


def assign_orders(graph: OperationGraph, schedule: Schedule, results: tuple[int, ...]) -> None:
    """Set `graph.orders`, which has those of the inputs so far."""
    given = dict(graph.orders)
    plain = {
        graph[index].args[0] for index in graph.ancestors(results) if graph[index].op == "view"
    }
    while True:
        graph.orders = {index: order for index, order in given.items() if index not in plain}
        unfit = _follow(graph, schedule, plain, results)
        if not unfit:
            return
        plain |= unfit


def _follow(
    graph: OperationGraph, schedule: Schedule, plain: set[int], results: tuple[int, ...]
) -> set[int]:
    """Order what the steps make; return the tensors whose order a region can't use."""
    unfit: set[int] = set()
    for step in schedule.steps:
        if isinstance(step, Region):
            order = _region_order(graph, step, plain)
            is_result = not step.nodes.isdisjoint(results)
            if order is None or (is_result and _is_contiguous_in_torch(graph, step, order)):
                unfit |= {index for index in region_inputs(graph, step) if index in graph.orders}
            else:
                full = [index for index in step.outputs if graph[index].shape == step.domain]
                graph.orders |= dict.fromkeys(full, order)
        elif graph[step].op == "torch" and step not in plain:
            found = library_order(graph, graph[step])
            if found is not None:
                graph.orders[step] = found
    return unfit


def _is_contiguous_in_torch(graph: OperationGraph, region: Region, order: Order) -> bool:
    """Whether a function of the region returns contiguous memory for operands of this order."""
    names = (graph.function_of.get(index, "") for index in region.nodes)
    return any(returns_contiguous(name, order) for name in names)


def _region_order(graph: OperationGraph, region: Region, plain: set[int]) -> Order | None:
    """The order of a region's loops; None for the plain one."""
    rank = len(region.domain)
    orders = {
        graph.orders.get(index, plain_order(rank))
        for index in region_inputs(graph, region)
        if graph[index].shape == region.domain
    }
    if region.pool is not None or len(orders) != 1 or not plain.isdisjoint(region.outputs):
        return None
    (order,) = orders
    flags = [dim - rank in region.dims for dim in order if region.domain[dim] != 1]
    if order == plain_order(rank) or flags != sorted(flags):
        return None  # reductions that are not along the last dimensions in memory
    return order


def loop_order(graph: OperationGraph, region: Region) -> Order:
    """The dimensions of a region's domain in the order of its loops."""
    return next(
        (
            graph.orders[index]
            for index in region.outputs
            if index in graph.orders and graph[index].shape == region.domain
        ),
        plain_order(len(region.domain)),
    )
