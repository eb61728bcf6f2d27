"""Losses in terms of the graph: elementwise terms, then a reduction.

Same conventions as `operations`: torch's names and argument names.
"""

from __future__ import annotations

from actors.agents.recipes.frames import Tensor, seen
from actors.agents.recipes.graph import Graph, Unknown
from actors.agents.recipes.operations import Function, apply, clamp, lift
from actors.agents.recipes.rowwise import mean, norm, sum


def settled(graph: Graph, terms: Tensor, reduction: str) -> Tensor:
    """The terms as the loss's `reduction` wants them."""
    if reduction == "none":
        return terms
    if reduction not in ("mean", "sum"):
        raise Unknown(f"a loss with reduction={reduction!r}")
    return (mean if reduction == "mean" else sum)(graph, terms)


def distance(graph: Graph, input: object, target: object) -> Tensor:
    if seen(graph, lift(graph, input)) != seen(graph, lift(graph, target)):
        raise Unknown("a loss between different shapes")
    return apply(graph, "sub", input, target)


def mse_loss(graph: Graph, input: object, target: object, reduction: str = "mean") -> Tensor:
    gap = distance(graph, input, target)
    return settled(graph, apply(graph, "mul", gap, gap), reduction)


def l1_loss(graph: Graph, input: object, target: object, reduction: str = "mean") -> Tensor:
    return settled(graph, apply(graph, "abs", distance(graph, input, target)), reduction)


def bent(graph: Graph, input: object, target: object, knee: float) -> Tensor:
    """0.5 d² inside the knee, knee (|d| - knee / 2) outside of it."""
    size = apply(graph, "abs", distance(graph, input, target))
    inside = apply(graph, "mul", apply(graph, "mul", size, size), 0.5)
    outside = apply(graph, "mul", apply(graph, "sub", size, 0.5 * knee), knee)
    return apply(graph, "where", apply(graph, "lt", size, knee), inside, outside)


def smooth_l1_loss(
    graph: Graph, input: object, target: object, reduction: str = "mean", beta: float = 1.0
) -> Tensor:
    if beta <= 0:
        return l1_loss(graph, input, target, reduction)
    return settled(graph, apply(graph, "div", bent(graph, input, target, beta), beta), reduction)


def huber_loss(
    graph: Graph, input: object, target: object, reduction: str = "mean", delta: float = 1.0
) -> Tensor:
    return settled(graph, bent(graph, input, target, delta), reduction)


def kl_div(
    graph: Graph, input: object, target: object, reduction: str = "mean", log_target: bool = False
) -> Tensor:
    if log_target:
        gap = apply(graph, "sub", target, input)
        terms = apply(graph, "mul", apply(graph, "exp", target), gap)
    else:
        entropy = apply(graph, "mul", target, apply(graph, "log", target))
        entropy = apply(graph, "where", apply(graph, "eq", target, 0.0), 0.0, entropy)
        terms = apply(graph, "sub", entropy, apply(graph, "mul", target, input))
    if reduction == "batchmean":
        return apply(graph, "div", sum(graph, terms), seen(graph, lift(graph, input))[0])
    return settled(graph, terms, reduction)


def hinge_embedding_loss(
    graph: Graph, input: object, target: object, margin: float = 1.0, reduction: str = "mean"
) -> Tensor:
    far = clamp(graph, apply(graph, "sub", margin, input), 0.0)
    near = apply(graph, "where", apply(graph, "eq", target, 1.0), input, 0.0)
    pushed = apply(graph, "where", apply(graph, "eq", target, -1.0), far, 0.0)
    return settled(graph, apply(graph, "add", near, pushed), reduction)


def cosine_similarity(
    graph: Graph, x1: object, x2: object, dim: int = 1, eps: float = 1e-8
) -> Tensor:
    dot = sum(graph, apply(graph, "mul", x1, x2), dim)
    left = clamp(graph, norm(graph, x1, 2, dim), eps)
    right = clamp(graph, norm(graph, x2, 2, dim), eps)
    return apply(graph, "div", dot, apply(graph, "mul", left, right))


def triplet_margin_loss(
    graph: Graph,
    anchor: object,
    positive: object,
    negative: object,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    if swap or p != 2:
        raise Unknown("a triplet loss with swap or another norm")
    near = norm(graph, apply(graph, "add", distance(graph, anchor, positive), eps), 2, -1)
    far = norm(graph, apply(graph, "add", distance(graph, anchor, negative), eps), 2, -1)
    gap = apply(graph, "add", apply(graph, "sub", near, far), margin)
    return settled(graph, clamp(graph, gap, 0.0), reduction)


FUNCTIONS: dict[str, Function] = {
    "mse_loss": mse_loss,
    "l1_loss": l1_loss,
    "smooth_l1_loss": smooth_l1_loss,
    "huber_loss": huber_loss,
    "kl_div": kl_div,
    "hinge_embedding_loss": hinge_embedding_loss,
    "cosine_similarity": cosine_similarity,
    "triplet_margin_loss": triplet_margin_loss,
}
