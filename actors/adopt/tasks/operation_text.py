"""One ATen operation of an exported graph as a line of ordinary PyTorch.

Operations that are not known here are written as `torch.ops.aten.NAME.OVERLOAD(...)`, which is
always right and is only harder to read.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

INFIX = {
    **{"add.Tensor": "+", "sub.Tensor": "-", "mul.Tensor": "*", "div.Tensor": "/"},
    **{"add.Scalar": "+", "sub.Scalar": "-", "mul.Scalar": "*", "div.Scalar": "/"},
    **{"pow.Tensor_Scalar": "**", "pow.Tensor_Tensor": "**", "matmul.default": "@"},
    **{"lt.Scalar": "<", "le.Scalar": "<=", "gt.Scalar": ">", "ge.Scalar": ">="},
    **{"eq.Scalar": "==", "ne.Scalar": "!=", "lt.Tensor": "<", "le.Tensor": "<="},
    **{"gt.Tensor": ">", "ge.Tensor": ">=", "eq.Tensor": "==", "ne.Tensor": "!="},
    **{"__and__.Tensor": "&", "__or__.Tensor": "|", "bitwise_and.Tensor": "&"},
}
# Functions with ATen's name and order of arguments.
FUNCTIONAL = frozenset(
    [
        *("linear", "gelu", "silu", "relu", "relu6", "elu", "selu", "celu", "leaky_relu", "mish"),
        *("hardtanh", "hardswish", "hardsigmoid", "softplus", "logsigmoid", "glu", "pad"),
        *("conv1d", "conv2d", "conv3d", "scaled_dot_product_attention", "avg_pool1d", "avg_pool2d"),
        *("avg_pool3d", "max_pool1d", "max_pool2d", "max_pool3d", "adaptive_avg_pool1d"),
        *("adaptive_avg_pool2d", "adaptive_max_pool2d", "pixel_shuffle", "pixel_unshuffle"),
        *("one_hot", "rms_norm", "cosine_similarity"),
    ]
)
TORCH = frozenset(
    [
        *("exp", "exp2", "expm1", "log", "log2", "log1p", "sqrt", "rsqrt", "reciprocal", "sin"),
        *("cos", "tan", "tanh", "sigmoid", "erf", "abs", "neg", "sign", "floor", "ceil", "round"),
        *("square", "maximum", "minimum", "where", "clamp", "clamp_min", "clamp_max", "sum"),
        *("mean", "amax", "amin", "prod", "cumsum", "argmax", "softmax", "log_softmax", "cat"),
        *("logsumexp", "stack", "bmm", "mm", "baddbmm", "addmm", "einsum", "outer", "isnan"),
        *("logical_not", "logical_and", "logical_or", "tril", "triu", "gather", "index_select"),
        *("repeat_interleave", "roll", "flip", "topk", "sort", "var", "std", "rsub", "lerp"),
        *("atan2", "fmod", "remainder", "isinf", "any", "all", "norm", "addcmul", "addcdiv"),
        *("chunk", "split", "unbind", "flatten", "squeeze", "unsqueeze", "masked_fill"),
    ]
)
METHODS = frozenset(
    [
        *("reshape", "permute", "transpose", "contiguous", "expand", "clone", "repeat"),
        *(
            "select",
            "new_zeros",
            "unflatten",
            "unfold",
            "movedim",
            "t",
            "narrow",
            "type_as",
            "detach",
            "expand_as",
        ),
    ]
)
FACTORIES = ("arange", "zeros", "ones", "full", "empty", "scalar_tensor")
RENAMED = {
    "split_with_sizes.default": "torch.split",
    "numpy_T.default": "torch.t",
    "linalg_vector_norm.default": "torch.linalg.vector_norm",
}


def operation_text(node: fx.Node) -> str:
    """Return the expression that computes one node; its inputs are written as their names."""
    if node.target is operator.getitem:
        return f"{_value(node.args[0])}[{node.args[1]!r}]"
    name, overload = operation_name(node)
    special = SPECIAL.get(name)
    if special is not None:
        return special(node)
    full = f"{name}.{overload}"
    if full in INFIX and len(node.args) == 2 and not node.kwargs:
        return f"{_value(node.args[0])} {INFIX[full]} {_value(node.args[1])}"
    if full in RENAMED:
        return _call(RENAMED[full], node.args, node.kwargs)
    if name in FUNCTIONAL:
        return _call(f"F.{name}", node.args, node.kwargs)
    if name in METHODS and isinstance(node.args[0], fx.Node):
        return _call(f"{_value(node.args[0])}.{name}", node.args[1:], node.kwargs)
    if name in TORCH and not name.startswith("_"):
        return _call(f"torch.{name}", node.args, node.kwargs)
    return _call(f"torch.ops.aten.{full}", node.args, node.kwargs)


def operation_name(node: fx.Node) -> tuple[str, str]:
    """Return the name and overload of a node's operation: ("add", "Tensor")."""
    if not isinstance(node.target, torch._ops.OpOverload):
        raise UntranslatableError(f"it calls {node.target}, which is not an operation of torch")
    space, name = node.target.namespace, node.target._opname
    if space != "aten":
        raise UntranslatableError(f"it calls {space}::{name}, an operation of another package")
    return name, node.target._overloadname


class UntranslatableError(ValueError):
    """A graph can't be written as a task; one clause with the reason."""


def _call(function: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    words = [_value(each) for each in args]
    words += [f"{name}={_value(each)}" for name, each in kwargs.items()]
    return f"{function}({', '.join(words)})"


def _value(value: Any) -> str:
    """Return an argument as Python text."""
    match value:
        case fx.Node():
            return str(value.meta.get("text", value.name))
        case list() | fx.immutable_collections.immutable_list():
            return f"[{', '.join(map(_value, value))}]"
        case tuple():
            return f"({', '.join(map(_value, value))},)"
        case torch.device():
            return f'torch.device("{value.type}")'
        case float() if value - value != 0:
            return f'float("{value}")'
        case None | bool() | int() | float() | str():
            return repr(value)
        case torch.dtype() | torch.memory_format() | torch.layout():
            return str(value)
    raise UntranslatableError(f"an argument of an operation is a {type(value).__name__}")


def _layer_norm(node: fx.Node) -> str:
    return _call("F.layer_norm", node.args[:5], {})  # the sixth says whether cuDNN may be used


def _group_norm(node: fx.Node) -> str:
    return _call("F.group_norm", node.args[:5], {})


def _batch_norm(node: fx.Node) -> str:
    values, weight, bias, mean, variance, training, momentum, epsilon = node.args[:8]
    order = (values, mean, variance, weight, bias, training, momentum, epsilon)
    return _call("F.batch_norm", order, {})


def _embedding(node: fx.Node) -> str:
    weight, indices = node.args[:2]
    return _call("F.embedding", (indices, weight), {})  # the others matter in backward only


def _conversion(node: fx.Node) -> str:
    wanted = [value for value in node.args[1:] if isinstance(value, torch.dtype)]
    wanted += [value for value in node.kwargs.values() if isinstance(value, torch.dtype)]
    if len(wanted) != 1:
        raise UntranslatableError("it moves a tensor to another device or layout")
    return _call(f"{_value(node.args[0])}.to", (wanted[0],), {})


def _slice(node: fx.Node) -> str:
    defaults: tuple[Any, ...] = (None, 0, None, None, 1)
    given: tuple[Any, ...] = tuple(node.args)
    values, dim, start, end, step = given + defaults[len(given) :]
    rank = values.meta["val"].dim()
    begin = "" if start in (None, 0) else _value(start)
    stop = "" if end is None or (isinstance(end, int) and end > 1 << 60) else _value(end)
    stride = "" if step == 1 else f":{step}"
    index = [":"] * (dim % rank) + [f"{begin}:{stop}{stride}"]
    return f"{_value(values)}[{', '.join(index)}]"


def _made_like_input(node: fx.Node) -> str:
    """Return a factory call; its device is left to the task's own first input."""
    name, _ = operation_name(node)
    kwargs = {
        key: value for key, value in node.kwargs.items() if key in ("dtype",) and value is not None
    }
    first = next(
        each for each in node.graph.nodes if each.op == "placeholder" and "input" in each.meta
    )
    text = _call(f"torch.{name}", node.args, kwargs)
    return f"{text[:-1]}{', ' if text[-2] != '(' else ''}device={first}.device)"


def _view(node: fx.Node) -> str:
    """Return a reshape: where gradients are wanted attention may give its result other strides."""
    name = "view" if isinstance(node.args[1], torch.dtype) else "reshape"
    return _call(f"{_value(node.args[0])}.{name}", node.args[1:], node.kwargs)


SPECIAL: dict[str, Callable[[fx.Node], str]] = {
    "layer_norm": _layer_norm,
    "group_norm": _group_norm,
    "batch_norm": _batch_norm,
    "embedding": _embedding,
    "to": _conversion,
    "_to_copy": _conversion,
    "slice": _slice,
    "view": _view,
    **dict.fromkeys(
        ("arange", "zeros", "ones", "full", "empty", "scalar_tensor"), _made_like_input
    ),
}
