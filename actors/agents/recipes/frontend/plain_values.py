"""Values that plain Python computes with while a task's source is read: numbers, texts, shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from actors.agents.recipes.frontend.symbolic_values import (
    ARGUMENT_ERRORS,
    BoundMethod,
    MetaTensor,
    OpaqueValue,
    ParameterValue,
    Symbol,
    UnsupportedSourceError,
)
from actors.agents.recipes.ir.graph import Shape, UnsupportedOperationError, broadcast
from actors.agents.recipes.ir.shape_inference import permute
from actors.agents.recipes.ir.tensor_views import TensorView

NUMERIC: dict[str, Callable[..., object]] = {
    "len": len, "int": int, "float": float, "bool": bool, "abs": abs, "min": min, "max": max,
    "round": round, "tuple": tuple, "list": list, "range": range, "enumerate": enumerate,
    "zip": zip, "sum": sum, "str": str, "reversed": reversed, "sorted": sorted, "dict": dict,
    "divmod": divmod, "any": any, "all": all,
}  # fmt: skip
FILL_DTYPES = {float: "float32", int: "int64", bool: "bool"}  # the dtype of torch.full for a number
CONTAINER_FUNCTIONS = frozenset(
    ["len", "tuple", "list", "enumerate", "zip", "reversed", "dict"]
)  # those that do not depend on what is inside


def refuse_unknown(value: object) -> None:
    """Raise where any part of a value is not known: Python would take it for true."""
    if isinstance(value, tuple | list):
        for item in value:
            refuse_unknown(item)
    elif not isinstance(value, bool | int | float | str | None | slice | dict):
        raise UnsupportedOperationError("a number that is")


def is_float32(args: list[object]) -> bool:
    """Whether the one argument is torch.float32."""
    return len(args) == 1 and getattr(args[0], "name", "") in ("torch.float32", "torch.float")


def is_instance(value: object, kinds: object) -> bool:
    """`isinstance(value, kinds)`; raises where the answer is not known while reading."""
    names = [getattr(k, "name", "") for k in (kinds if isinstance(kinds, tuple) else (kinds,))]
    if isinstance(value, TensorView | ParameterValue | MetaTensor):
        tensors = {"torch.Tensor", "torch.nn.Parameter"} & set(names)
        if tensors and (isinstance(value, ParameterValue) or "torch.Tensor" in names):
            return True
        if not tensors and all(name in NUMERIC for name in names):
            return False
    plain = {"int": int, "float": float, "bool": bool, "str": str, "tuple": tuple, "list": list}
    if isinstance(value, bool | int | float | str | tuple | list | None):
        known = [plain.get(name) for name in names]
        if all(known) or {"torch.Tensor"} >= {n for n in names if n not in plain}:
            return any(kind is not None and isinstance(value, kind) for kind in known)
    raise UnsupportedOperationError("isinstance() of what is not known")


def meta_method(made: MetaTensor, name: str, args: list[object]) -> MetaTensor:
    """A constructor's tensor after such a method; raises for methods with another result."""
    if name == "to" and len(args) == 1 and getattr(args[0], "name", "").startswith("torch."):
        return msgspec.structs.replace(made, dtype=args[0].name.removeprefix("torch."))  # type: ignore[attr-defined]
    if name == "permute":
        return msgspec.structs.replace(made, shape=permute(made.shape, *args))
    dtype = {"float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16",
             "long": "int64", "int": "int32", "bool": "bool"}.get(name)  # fmt: skip
    if dtype is not None:
        return msgspec.structs.replace(made, dtype=dtype)
    if name in ("softmax", "abs", "exp", "contiguous", "clone", "detach", "requires_grad_", "neg",
                "normal_", "uniform_", "zero_", "fill_", "sqrt", "sin", "cos", "tanh",
                "clamp", "clamp_", "clip", "tril", "triu"):  # fmt: skip
        return made
    raise UnsupportedOperationError(f"a tensor's .{name}() while constructing")


def evaluate_plain_method(
    owner: dict[object, object] | str, name: str, args: list[object], kwargs: dict[str, object]
) -> object:
    """A method of a plain dictionary or string."""
    found = getattr(owner, name, None)
    if found is None or not callable(found):
        raise UnsupportedOperationError(f"the attribute {name}")
    value = evaluate_plain(found, *args, **kwargs)
    return value if isinstance(owner, str) or name == "get" else list(value)  # type: ignore[call-overload]


def evaluate_plain(function: Callable[..., object], *args: object, **kwargs: object) -> object:
    """`function(*args, **kwargs)` on plain values; raises where Python raises."""
    try:
        value = function(*args, **kwargs)
        if isinstance(value, Iterator | range):
            value = list(value)
    except ARGUMENT_ERRORS as error:
        raise UnsupportedOperationError(str(error)) from error
    return value


def meta_tensor(name: str, args: list[object], kwargs: dict[str, object]) -> MetaTensor | None:
    """The tensor that a constructor makes with `torch.name(...)`; None: its shape is not known."""
    dtype = factory_dtype(name, args, kwargs)
    if name.endswith("_like"):
        made = args[0] if args and isinstance(args[0], MetaTensor) else None
        has_new_dtype = made is not None and "dtype" in kwargs
        return msgspec.structs.replace(made, dtype=dtype) if made and has_new_dtype else made
    if name == "tensor":
        value = args[0] if args else None
        if isinstance(value, float):
            return MetaTensor(shape=(), dtype=dtype)
        if isinstance(value, list) and value and all(isinstance(v, float) for v in value):
            return MetaTensor(shape=(len(value),), dtype=dtype)
        return None
    if name == "randint":
        args = args[-1:]
    if name == "full":
        args = args[:1]
    if "size" in kwargs:
        args = [kwargs["size"]]
    sizes = args[0] if len(args) == 1 and isinstance(args[0], tuple | list) else args
    if not isinstance(sizes, tuple | list):
        return None
    shape: Shape = tuple(n for n in sizes if isinstance(n, int))
    return MetaTensor(shape=shape, dtype=dtype) if len(shape) == len(sizes) else None


def factory_dtype(name: str, args: list[object], kwargs: dict[str, object]) -> str:
    """The dtype of the tensor that `torch.name(...)` makes: the argument's, else the default."""
    dtype = kwargs.get("dtype")
    if dtype is not None:
        return dtype.name.removeprefix("torch.") if isinstance(dtype, Symbol) else "unknown"
    if name == "randint":
        return "int64"
    if name == "full":
        filling = args[1] if len(args) > 1 else kwargs.get("fill_value")
        return FILL_DTYPES.get(type(filling), "unknown")
    return "float32"


def meta_arithmetic(left: object, right: object) -> MetaTensor:
    """Arithmetic on a constructor's tensors: the broadcast shape; "unknown" unless all float32."""
    metas = [value for value in (left, right) if isinstance(value, MetaTensor)]
    if not all(isinstance(value, MetaTensor | bool | int | float) for value in (left, right)):
        raise UnsupportedOperationError("arithmetic on what is not known")
    dtypes = {value.dtype for value in metas}
    dtype = dtypes.pop() if dtypes <= {"float32"} else "unknown"
    return MetaTensor(shape=broadcast(*(m.shape for m in metas)), dtype=dtype, line=metas[0].line)


def dictionary_key(value: object) -> object:
    """The value as a dictionary's key; raises where it is not plain."""
    if isinstance(value, bool | int | float | str | None):
        return value
    raise UnsupportedOperationError("a dictionary with such keys")


def plain_value(value: object) -> object:
    """The value, if plain Python can decide on it; raises for tensors and unknown values."""
    if isinstance(value, TensorView | ParameterValue):
        raise UnsupportedSourceError("a branch depends on a tensor's numbers")
    if isinstance(value, OpaqueValue | Symbol | BoundMethod):
        what = getattr(value, "text", "") or getattr(value, "name", "")
        raise UnsupportedSourceError(
            f"a branch depends on {what or 'something'}, whose value is not known"
        )
    return value
