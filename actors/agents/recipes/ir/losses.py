"""Losses in terms of the graph's operations: elementwise terms, then a reduction.

The conventions are those of `elementwise`: torch's names and argument names.
"""

from __future__ import annotations

from actors.agents.recipes.ir.elementwise import GraphFunction, apply, as_tensor, clamp
from actors.agents.recipes.ir.graph import OperationGraph, UnsupportedOperationError
from actors.agents.recipes.ir.reductions import mean, norm, sum
from actors.agents.recipes.ir.tensor_views import TensorView, visible_shape


def reduce_loss(graph: OperationGraph, terms: TensorView, reduction: str) -> TensorView:
    """The loss's terms after its `reduction`."""
    if reduction == "none":
        return terms
    if reduction not in ("mean", "sum"):
        raise UnsupportedOperationError(f"a loss with reduction={reduction!r}")
    return (mean if reduction == "mean" else sum)(graph, terms)


def distance(graph: OperationGraph, input: object, target: object) -> TensorView:
    """input - target; raises where their shapes differ."""
    if visible_shape(graph, as_tensor(graph, input)) != visible_shape(
        graph, as_tensor(graph, target)
    ):
        raise UnsupportedOperationError("a loss between different shapes")
    return apply(graph, "sub", input, target)


def mse_loss(
    graph: OperationGraph, input: object, target: object, reduction: str = "mean"
) -> TensorView:
    gap = distance(graph, input, target)
    return reduce_loss(graph, apply(graph, "mul", gap, gap), reduction)


def l1_loss(
    graph: OperationGraph, input: object, target: object, reduction: str = "mean"
) -> TensorView:
    return reduce_loss(graph, apply(graph, "abs", distance(graph, input, target)), reduction)


def huber_terms(graph: OperationGraph, input: object, target: object, knee: float) -> TensorView:
    """0.5 d² where |d| is below the knee, else knee (|d| - knee / 2)."""
    size = apply(graph, "abs", distance(graph, input, target))
    inside = apply(graph, "mul", apply(graph, "mul", size, size), 0.5)
    outside = apply(graph, "mul", apply(graph, "sub", size, 0.5 * knee), knee)
    return apply(graph, "where", apply(graph, "lt", size, knee), inside, outside)


def smooth_l1_loss(
    graph: OperationGraph, input: object, target: object, reduction: str = "mean", beta: float = 1.0
) -> TensorView:
    if beta <= 0:
        return l1_loss(graph, input, target, reduction)
    return reduce_loss(
        graph, apply(graph, "div", huber_terms(graph, input, target, beta), beta), reduction
    )


def huber_loss(
    graph: OperationGraph,
    input: object,
    target: object,
    reduction: str = "mean",
    delta: float = 1.0,
) -> TensorView:
    return reduce_loss(graph, huber_terms(graph, input, target, delta), reduction)


def kl_div(
    graph: OperationGraph,
    input: object,
    target: object,
    reduction: str = "mean",
    log_target: bool = False,
) -> TensorView:
    if log_target:
        gap = apply(graph, "sub", target, input)
        terms = apply(graph, "mul", apply(graph, "exp", target), gap)
    else:
        entropy = apply(graph, "mul", target, apply(graph, "log", target))
        entropy = apply(graph, "where", apply(graph, "eq", target, 0.0), 0.0, entropy)
        terms = apply(graph, "sub", entropy, apply(graph, "mul", target, input))
    if reduction == "batchmean":
        return apply(
            graph, "div", sum(graph, terms), visible_shape(graph, as_tensor(graph, input))[0]
        )
    return reduce_loss(graph, terms, reduction)


def hinge_embedding_loss(
    graph: OperationGraph,
    input: object,
    target: object,
    margin: float = 1.0,
    reduction: str = "mean",
) -> TensorView:
    far = clamp(graph, apply(graph, "sub", margin, input), 0.0)
    near = apply(graph, "where", apply(graph, "eq", target, 1.0), input, 0.0)
    pushed = apply(graph, "where", apply(graph, "eq", target, -1.0), far, 0.0)
    return reduce_loss(graph, apply(graph, "add", near, pushed), reduction)


def cosine_similarity(
    graph: OperationGraph, x1: object, x2: object, dim: int = 1, eps: float = 1e-8
) -> TensorView:
    dot = sum(graph, apply(graph, "mul", x1, x2), dim)
    left = clamp(graph, norm(graph, x1, 2, dim), eps)
    right = clamp(graph, norm(graph, x2, 2, dim), eps)
    return apply(graph, "div", dot, apply(graph, "mul", left, right))


def triplet_margin_loss(
    graph: OperationGraph,
    anchor: object,
    positive: object,
    negative: object,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
) -> TensorView:
    if swap or p != 2:
        raise UnsupportedOperationError("a triplet loss with swap or another norm")
    near = norm(graph, apply(graph, "add", distance(graph, anchor, positive), eps), 2, -1)
    far = norm(graph, apply(graph, "add", distance(graph, anchor, negative), eps), 2, -1)
    gap = apply(graph, "add", apply(graph, "sub", near, far), margin)
    return reduce_loss(graph, clamp(graph, gap, 0.0), reduction)


LOSS_FUNCTIONS: dict[str, GraphFunction] = {
    "mse_loss": mse_loss,
    "l1_loss": l1_loss,
    "smooth_l1_loss": smooth_l1_loss,
    "huber_loss": huber_loss,
    "kl_div": kl_div,
    "hinge_embedding_loss": hinge_embedding_loss,
    "cosine_similarity": cosine_similarity,
    "triplet_margin_loss": triplet_margin_loss,
}
