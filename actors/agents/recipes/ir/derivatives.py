"""Reverse-mode derivatives in the operation graph: nodes for the gradients of leaves.

Example: of `(x + b).tanh()` with x [64, 8] and b [8], for the gradient g of the result,
    x: g * (1 - t * t) with t the forward's own node [64, 8]
    b: the sum of the same over the rows, [8]

A gradient may have size 1 where its node is wider: it is then the same along that dimension.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from actors.agents.recipes.ir.graph import (
    MASKS,
    REDUCTIONS,
    OperationGraph,
    Shape,
    UnsupportedOperationError,
    contiguous,
)

# Operations whose derivative is zero wherever there is one.
FLAT = frozenset(["floor", "ceil", "round", "trunc", "sign", "to_float"])
Contribution = tuple[int, int]  # a node, and a part of its gradient


class Derivatives:
    """The gradients of one graph's results."""

    def __init__(self, graph: OperationGraph) -> None:
        self.graph = graph

    def gradients(
        self, results: tuple[int, ...], given: tuple[int, ...], wanted: tuple[int, ...]
    ) -> list[int | None]:
        """Return the gradient node of each wanted leaf, None where no result depends on it.

        `given`: for each result a leaf with its gradient.  Raises UnsupportedOperationError where
        an operation on the way has no rule.
        """
        reached = self._reaching(wanted)
        found: dict[int, list[int]] = {}
        for result, gradient in zip(results, given, strict=True):
            found.setdefault(result, []).append(gradient)
        for index in sorted(self.graph.ancestors(results) & reached, reverse=True):
            parts = found.pop(index, [])
            if not parts:
                continue
            gradient = self._sum(parts)
            if index in wanted:
                found[index] = [self.expanded(gradient, index)]
                continue
            for operand, part in self._contributions(index, gradient):
                if operand in reached:
                    found.setdefault(operand, []).append(part)
        return [found[leaf][0] if leaf in found else None for leaf in wanted]

    def _reaching(self, wanted: tuple[int, ...]) -> set[int]:
        """The nodes that depend on a wanted leaf."""
        found = set(wanted)
        for index, node in enumerate(self.graph.nodes):
            if any(arg in found for arg in node.args):
                found.add(index)
        return found

    def _sum(self, parts: list[int]) -> int:
        total = parts[0]
        for part in parts[1:]:
            total = self.graph.apply("add", total, part)
        return total

    def _contributions(self, index: int, gradient: int) -> Iterator[Contribution]:
        """The parts of the gradients of a node's operands."""
        node = self.graph[index]
        if node.op in MASKS or node.op in FLAT:
            return
        if node.op == "view":
            yield node.args[0], self._through_view(index, gradient)
        elif node.op in REDUCTIONS:
            yield node.args[0], self._through_reduction(index, gradient)
        elif node.op in UNARY_RULES:
            yield node.args[0], UNARY_RULES[node.op](self, gradient, node.args[0], index)
        elif node.op in OPERAND_RULES:
            for operand, part in OPERAND_RULES[node.op](self, gradient, index):
                yield operand, self._narrowed(part, node.sizes, self.graph[operand].sizes)
        else:
            what = "what PyTorch computes" if node.op == "torch" else node.op
            raise UnsupportedOperationError(f"the derivative of {what}")

    def _through_view(self, index: int, gradient: int) -> int:
        node, base = self.graph[index], self.graph[self.graph[index].args[0]]
        whole = math.prod(node.sizes) == math.prod(base.sizes) and node.offset == 0
        if not whole or node.strides != contiguous(node.sizes):
            raise UnsupportedOperationError("the derivative of a slice")
        return self.graph.view(self.expanded(gradient, index), base.sizes)

    def _through_reduction(self, index: int, gradient: int) -> int:
        node = self.graph[index]
        if node.op == "sum":
            return gradient  # the same for each number of the sum
        # As torch.amax: numbers that are equal share the gradient.
        is_extreme = self.apply("to_float", self.apply("eq", node.args[0], index))
        count = self.graph.reduce("sum", is_extreme, node.dims)
        return self.apply("mul", is_extreme, self.apply("div", gradient, count))

    def apply(self, op: str, *args: int | float) -> int:
        """An operation on nodes and numbers."""
        nodes = [arg if isinstance(arg, int) else self.graph.const(arg) for arg in args]
        return self.graph.apply(op, *nodes)

    def expanded(self, gradient: int, index: int) -> int:
        """The gradient with the shape of its node."""
        if self.graph[gradient].sizes == self.graph[index].sizes:
            return gradient
        # A choice between equals has the shape of its condition.
        return self.apply("where", self.apply("eq", index, index), gradient, gradient)

    def _narrowed(self, gradient: int, shape: Shape, operand: Shape) -> int:
        """The gradient of an operand that was broadcast to `shape`: sums over those dimensions."""
        pad = len(shape) - len(operand)
        sizes = self.graph[gradient].sizes
        sizes = (1,) * (len(shape) - len(sizes)) + sizes
        if len(self.graph[gradient].sizes) != len(sizes):
            gradient = self.graph.view(gradient, sizes)
        wide = [d for d, n in enumerate(shape) if n != 1 and (d < pad or operand[d - pad] == 1)]
        repeats = math.prod(shape[d] for d in wide if sizes[d] == 1)
        if repeats != 1:
            gradient = self.apply("mul", gradient, float(repeats))
        gradient = self.graph.reduce("sum", gradient, tuple(d for d in wide if sizes[d] != 1))
        return self.graph.view(gradient, self.graph[gradient].sizes[pad:]) if pad else gradient


# --- rules: (derivatives, gradient of the result, operand, result) -> gradient of the operand ---

UnaryRule = Callable[[Derivatives, int, int, int], int]
OperandRule = Callable[[Derivatives, int, int], list[Contribution]]


def _one_minus(d: Derivatives, value: int) -> int:
    return d.apply("sub", 1.0, value)


def _times(d: Derivatives, *factors: int | float) -> int:
    product = factors[0]
    for factor in factors[1:]:
        product = d.apply("mul", product, factor)
    if not isinstance(product, int):
        raise TypeError("a product of numbers alone")
    return product


def _silu(d: Derivatives, g: int, x: int, y: int) -> int:
    s = d.apply("sigmoid", x)
    return _times(d, g, s, d.apply("add", 1.0, _times(d, x, _one_minus(d, s))))


def _gelu(d: Derivatives, g: int, x: int, y: int) -> int:
    half = d.apply("erf", _times(d, x, math.sqrt(0.5)))
    density = d.apply("exp", _times(d, _times(d, x, x), -0.5))
    below = _times(d, d.apply("add", 1.0, half), 0.5)
    return _times(
        d, g, d.apply("add", below, _times(d, _times(d, x, density), 1 / math.sqrt(2 * math.pi)))
    )


def _gelu_tanh(d: Derivatives, g: int, x: int, y: int) -> int:
    scale = math.sqrt(2 / math.pi)
    square = _times(d, x, x)
    inner = _times(d, x, d.apply("add", scale, _times(d, square, scale * 0.044715)))
    t = d.apply("tanh", inner)
    slope = d.apply("add", scale, _times(d, square, 3 * scale * 0.044715))
    outer = _times(d, _times(d, x, _one_minus(d, _times(d, t, t))), slope)
    return _times(d, g, d.apply("add", d.apply("add", 1.0, t), outer), 0.5)


def _mish(d: Derivatives, g: int, x: int, y: int) -> int:
    t = d.apply("tanh", d.apply("softplus", x))
    rest = _times(d, x, _one_minus(d, _times(d, t, t)), d.apply("sigmoid", x))
    return _times(d, g, d.apply("add", t, rest))


UNARY_RULES: dict[str, UnaryRule] = {
    "neg": lambda d, g, x, y: d.apply("neg", g),
    "abs": lambda d, g, x, y: _times(d, g, d.apply("sign", x)),
    "exp": lambda d, g, x, y: _times(d, g, y),
    "expm1": lambda d, g, x, y: _times(d, g, d.apply("add", y, 1.0)),
    "log": lambda d, g, x, y: d.apply("div", g, x),
    "log1p": lambda d, g, x, y: d.apply("div", g, d.apply("add", x, 1.0)),
    "sqrt": lambda d, g, x, y: d.apply("div", _times(d, g, 0.5), y),
    "rsqrt": lambda d, g, x, y: _times(d, g, _times(d, y, y, y), -0.5),
    "reciprocal": lambda d, g, x, y: d.apply("neg", _times(d, g, _times(d, y, y))),
    "tanh": lambda d, g, x, y: _times(d, g, _one_minus(d, _times(d, y, y))),
    "sigmoid": lambda d, g, x, y: _times(d, g, y, _one_minus(d, y)),
    "erf": lambda d, g, x, y: _times(
        d, g, d.apply("exp", d.apply("neg", _times(d, x, x))), 2 / math.sqrt(math.pi)
    ),
    "relu": lambda d, g, x, y: d.apply("where", d.apply("gt", x, 0.0), g, 0.0),
    "silu": _silu,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "softplus": lambda d, g, x, y: _times(d, g, d.apply("sigmoid", x)),
    "mish": _mish,
    "sin": lambda d, g, x, y: _times(d, g, d.apply("cos", x)),
    "cos": lambda d, g, x, y: d.apply("neg", _times(d, g, d.apply("sin", x))),
    # It keeps finite numbers; an infinite one has no derivative that counts.
    "finite_or_zero": lambda d, g, x, y: g,
}


def _extreme(comparison: str) -> OperandRule:
    """maximum and minimum: equal operands share the gradient, as in torch."""

    def rule(d: Derivatives, g: int, index: int) -> list[Contribution]:
        a, b = d.graph[index].args
        half = d.apply("where", d.apply("eq", a, b), _times(d, g, 0.5), 0.0)
        return [
            (one, d.apply("where", d.apply(comparison, one, other), g, half))
            for one, other in ((a, b), (b, a))
        ]

    return rule


def _mul(d: Derivatives, g: int, index: int) -> list[Contribution]:
    a, b = d.graph[index].args
    return [(a, _times(d, g, b)), (b, _times(d, g, a))]


def _div(d: Derivatives, g: int, index: int) -> list[Contribution]:
    a, b = d.graph[index].args
    part = d.apply("div", g, b)
    return [(a, part), (b, d.apply("neg", _times(d, part, index)))]


def _sub(d: Derivatives, g: int, index: int) -> list[Contribution]:
    a, b = d.graph[index].args
    return [(a, g), (b, d.apply("neg", g))]


def _where(d: Derivatives, g: int, index: int) -> list[Contribution]:
    condition, a, b = d.graph[index].args
    return [
        (a, d.apply("where", condition, g, 0.0)),
        (b, d.apply("where", condition, 0.0, g)),
    ]


OPERAND_RULES: dict[str, OperandRule] = {
    "add": lambda d, g, index: [(arg, g) for arg in d.graph[index].args],
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "maximum": _extreme("gt"),
    "minimum": _extreme("lt"),
    "where": _where,
}
