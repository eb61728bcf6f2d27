"""torch's elementwise functions in terms of the graph's operations.

Each function has the name and the arguments of torch's (`input`, `approximate`, ...), so that
Python binds a call's arguments.  `ELEMENTWISE_FUNCTIONS` is looked up by the bare name: torch.f,
torch.nn.functional.f and a tensor's method f are one entry.
"""

from __future__ import annotations

from collections.abc import Callable

from actors.agents.recipes.ir.graph import MASKS, OperationGraph, UnsupportedOperationError
from actors.agents.recipes.ir.tensor_views import TensorView, broadcast_views

GraphFunction = Callable[..., object]  # takes the graph, then torch's arguments


def as_tensor(graph: OperationGraph, operand: object) -> TensorView:
    """The tensor; a number becomes a constant."""
    if isinstance(operand, TensorView):
        return operand
    if isinstance(operand, bool | int | float):
        return TensorView(node=graph.const(operand), groups=())
    raise UnsupportedOperationError(f"an operand of type {type(operand).__name__}")


def apply(graph: OperationGraph, op: str, *operands: object) -> TensorView:
    """One elementwise operation on tensors and numbers, broadcasting as torch does."""
    tensors = [as_tensor(graph, operand) for operand in operands]
    nodes, groups = broadcast_views(graph, tensors)
    if op == "where":
        if not graph[nodes[0]].is_mask:
            raise UnsupportedOperationError("a condition that is not a comparison")
        nodes[1:] = [as_float(graph, node) for node in nodes[1:]]
    elif op in MASKS and op in ("and", "or", "not"):
        if not all(graph[node].is_mask for node in nodes):
            raise UnsupportedOperationError("logic on numbers")
    elif op != "to_float":
        nodes = [as_float(graph, node) for node in nodes]
    return TensorView(node=graph.apply(op, *nodes), groups=groups)


def as_float(graph: OperationGraph, node: int) -> int:
    """The node; a mask becomes 1.0 and 0.0."""
    return graph.apply("to_float", node) if graph[node].is_mask else node


def unary(op: str) -> GraphFunction:
    def function(graph: OperationGraph, input: object, inplace: bool = False) -> TensorView:
        return apply(graph, op, input)

    return function


def binary(op: str) -> GraphFunction:
    def function(graph: OperationGraph, input: object, other: object) -> TensorView:
        return apply(graph, op, input, other)

    return function


def add(graph: OperationGraph, input: object, other: object, alpha: float = 1) -> TensorView:
    return apply(graph, "add", input, apply(graph, "mul", other, alpha))


def sub(graph: OperationGraph, input: object, other: object, alpha: float = 1) -> TensorView:
    return apply(graph, "sub", input, apply(graph, "mul", other, alpha))


def div(
    graph: OperationGraph, input: object, other: object, rounding_mode: str | None = None
) -> TensorView:
    if rounding_mode is not None:
        raise UnsupportedOperationError("a division that rounds")
    return apply(graph, "div", input, other)


def pow(graph: OperationGraph, input: object, exponent: object) -> TensorView:
    if isinstance(exponent, TensorView):
        raise UnsupportedOperationError("a power whose exponent is a tensor")
    if not isinstance(exponent, int | float):
        raise UnsupportedOperationError("a power that is not a number")
    root = {0.5: "sqrt", -0.5: "rsqrt", -1.0: "reciprocal"}.get(float(exponent))
    if root:
        return apply(graph, root, input)
    if exponent not in (1, 2, 3, 4):
        raise UnsupportedOperationError(f"a power of {exponent}")
    squared = apply(graph, "mul", input, input)
    if exponent == 1:
        return as_tensor(graph, input)
    if exponent == 2:
        return squared
    return apply(graph, "mul", squared, input if exponent == 3 else squared)


def gelu(graph: OperationGraph, input: object, approximate: str = "none") -> TensorView:
    if approximate not in ("none", "tanh"):
        raise UnsupportedOperationError(f"gelu with approximate={approximate!r}")
    return apply(graph, "gelu" if approximate == "none" else "gelu_tanh", input)


def clamp(
    graph: OperationGraph, input: object, min: object = None, max: object = None
) -> TensorView:
    out = as_tensor(graph, input)
    if min is not None:
        out = apply(graph, "maximum", out, min)
    if max is not None:
        out = apply(graph, "minimum", out, max)
    return out


def hardtanh(
    graph: OperationGraph,
    input: object,
    min_val: float = -1.0,
    max_val: float = 1.0,
    inplace: bool = False,
) -> TensorView:
    return clamp(graph, input, min_val, max_val)


def relu6(graph: OperationGraph, input: object, inplace: bool = False) -> TensorView:
    return clamp(graph, input, 0.0, 6.0)


def where_positive(
    graph: OperationGraph, input: object, then: object, otherwise: object
) -> TensorView:
    """`then` where the input is above 0, else `otherwise`."""
    return apply(graph, "where", apply(graph, "gt", input, 0.0), then, otherwise)


def leaky_relu(
    graph: OperationGraph, input: object, negative_slope: float = 0.01, inplace: bool = False
) -> TensorView:
    return where_positive(graph, input, input, apply(graph, "mul", input, negative_slope))


def elu(
    graph: OperationGraph, input: object, alpha: float = 1.0, inplace: bool = False
) -> TensorView:
    low = apply(graph, "mul", apply(graph, "expm1", clamp(graph, input, max=0.0)), alpha)
    return where_positive(graph, input, input, low)


def celu(
    graph: OperationGraph, input: object, alpha: float = 1.0, inplace: bool = False
) -> TensorView:
    scaled = clamp(graph, apply(graph, "div", input, alpha), max=0.0)
    low = apply(graph, "mul", apply(graph, "expm1", scaled), alpha)
    return where_positive(graph, input, input, low)


def selu(graph: OperationGraph, input: object, inplace: bool = False) -> TensorView:
    return apply(
        graph, "mul", elu(graph, input, 1.6732632423543772848170429916717), 1.0507009873554804934193
    )


def softplus(
    graph: OperationGraph, input: object, beta: float = 1.0, threshold: float = 20.0
) -> TensorView:
    if threshold != 20:
        raise UnsupportedOperationError("softplus with a threshold of its own")
    scaled = apply(graph, "softplus", apply(graph, "mul", input, beta))
    return apply(graph, "div", scaled, beta)


def logsigmoid(graph: OperationGraph, input: object) -> TensorView:
    small = apply(graph, "exp", apply(graph, "neg", apply(graph, "abs", input)))
    low = apply(graph, "minimum", input, 0.0)
    return apply(graph, "sub", low, apply(graph, "log1p", small))


def hardsigmoid(graph: OperationGraph, input: object, inplace: bool = False) -> TensorView:
    return apply(graph, "div", relu6(graph, apply(graph, "add", input, 3.0)), 6.0)


def hardswish(graph: OperationGraph, input: object, inplace: bool = False) -> TensorView:
    gate = relu6(graph, apply(graph, "add", input, 3.0))
    return apply(graph, "div", apply(graph, "mul", input, gate), 6.0)


def softsign(graph: OperationGraph, input: object) -> TensorView:
    return apply(graph, "div", input, apply(graph, "add", apply(graph, "abs", input), 1.0))


def tanhshrink(graph: OperationGraph, input: object) -> TensorView:
    return apply(graph, "sub", input, apply(graph, "tanh", input))


def threshold(
    graph: OperationGraph, input: object, threshold: float, value: float, inplace: bool = False
) -> TensorView:
    return apply(graph, "where", apply(graph, "gt", input, threshold), input, value)


def hardshrink(graph: OperationGraph, input: object, lambd: float = 0.5) -> TensorView:
    inside = apply(graph, "le", apply(graph, "abs", input), lambd)
    return apply(graph, "where", inside, 0.0, input)


def softshrink(graph: OperationGraph, input: object, lambd: float = 0.5) -> TensorView:
    high = apply(graph, "maximum", apply(graph, "sub", input, lambd), 0.0)
    return apply(graph, "add", high, apply(graph, "minimum", apply(graph, "add", input, lambd), 0))


def where(graph: OperationGraph, condition: object, input: object, other: object) -> TensorView:
    return apply(graph, "where", condition, input, other)


def where_method(
    graph: OperationGraph, input: object, condition: object, other: object
) -> TensorView:
    return apply(graph, "where", condition, input, other)


def masked_fill(graph: OperationGraph, input: object, mask: object, value: float) -> TensorView:
    return apply(graph, "where", mask, value, input)


def lerp(graph: OperationGraph, input: object, end: object, weight: object) -> TensorView:
    step = apply(graph, "mul", weight, apply(graph, "sub", end, input))
    return apply(graph, "add", input, step)


def addcmul(
    graph: OperationGraph, input: object, tensor1: object, tensor2: object, *, value: float = 1
) -> TensorView:
    product = apply(graph, "mul", apply(graph, "mul", tensor1, tensor2), value)
    return apply(graph, "add", input, product)


def identity(graph: OperationGraph, input: object) -> TensorView:
    """Functions that return a float32 tensor unchanged."""
    tensor = as_tensor(graph, input)
    if graph[tensor.node].shape is None:
        raise UnsupportedOperationError("a tensor whose type and layout are not known")
    node = as_float(graph, tensor.node)
    return TensorView(node=node, groups=tensor.groups)


PLAIN_UNARY = (
    "neg abs exp expm1 log log1p sqrt rsqrt reciprocal tanh sigmoid erf relu silu mish"
    " sin cos floor ceil round trunc sign"
)
UNARY_ALIASES = {"negative": "neg", "absolute": "abs", "logical_not": "not", "bitwise_not": "not"}
BINARY_ALIASES = {
    "mul": "mul", "multiply": "mul", "true_divide": "div", "maximum": "maximum",
    "minimum": "minimum", "gt": "gt", "greater": "gt", "lt": "lt", "less": "lt", "ge": "ge",
    "greater_equal": "ge", "le": "le", "less_equal": "le", "eq": "eq", "ne": "ne",
    "logical_and": "and", "logical_or": "or",
}  # fmt: skip

ELEMENTWISE_FUNCTIONS: dict[str, GraphFunction] = {
    **{name: unary(name) for name in PLAIN_UNARY.split()},
    **{name: unary(op) for name, op in UNARY_ALIASES.items()},
    **{name: binary(op) for name, op in BINARY_ALIASES.items()},
    "add": add,
    "sub": sub,
    "subtract": sub,
    "div": div,
    "divide": div,
    "pow": pow,
    "square": lambda graph, input: pow(graph, input, 2),
    "gelu": gelu,
    "clamp": clamp,
    "clip": clamp,
    "clamp_min": lambda graph, input, min: clamp(graph, input, min),
    "clamp_max": lambda graph, input, max: clamp(graph, input, None, max),
    "hardtanh": hardtanh,
    "relu6": relu6,
    "leaky_relu": leaky_relu,
    "elu": elu,
    "celu": celu,
    "selu": selu,
    "softplus": softplus,
    "logsigmoid": logsigmoid,
    "hardsigmoid": hardsigmoid,
    "hardswish": hardswish,
    "softsign": softsign,
    "tanhshrink": tanhshrink,
    "threshold": threshold,
    "hardshrink": hardshrink,
    "softshrink": softshrink,
    "where": where,
    "masked_fill": masked_fill,
    "lerp": lerp,
    "addcmul": addcmul,
    "expit": unary("sigmoid"),
    "detach": identity,
    "float": identity,
    "contiguous": identity,
    "clone": identity,
    "alias": identity,
}
ELEMENTWISE_METHODS: dict[str, GraphFunction] = {
    "where": where_method
}  # where a method's order differs
