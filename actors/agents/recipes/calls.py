"""Calls in a task's source: what is known becomes graph nodes, the rest a PyTorch expression."""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Callable

from actors.agents.recipes import losses, moves, operations, rowwise
from actors.agents.recipes.frames import Tensor, seen
from actors.agents.recipes.graph import Graph, Shape, Unknown
from actors.agents.recipes.leaving import Leaving
from actors.agents.recipes.modules import LAYERS
from actors.agents.recipes.objects import (
    MISFITS,
    Function,
    Hidden,
    Meta,
    Method,
    Module,
    Parameter,
    Symbol,
    Unreadable,
)
from actors.agents.recipes.source import method

FUNCTIONS = {**operations.FUNCTIONS, **rowwise.FUNCTIONS, **moves.FUNCTIONS, **losses.FUNCTIONS}
PREFIXES = ("torch.", "torch.nn.functional.", "torch.special.", "torch.linalg.")
FACTORIES = frozenset(
    ["rand", "randn", "zeros", "ones", "empty", "full", "randint", "tensor", "eye"]
)
CONTAINERS = ("Sequential", "ModuleList")
NUMERIC: dict[str, Callable[..., object]] = {
    "len": len, "int": int, "float": float, "bool": bool, "abs": abs, "min": min, "max": max,
    "round": round, "tuple": tuple, "list": list, "range": range, "enumerate": enumerate,
    "zip": zip, "sum": sum, "str": str, "reversed": reversed, "sorted": sorted,
}  # fmt: skip


class Calling(Leaving):
    """The part of the reader that knows what calls mean."""

    def __init__(self, graph: Graph, fold_bias: bool) -> None:
        super().__init__(graph)
        self.fold_bias = fold_bias
        self.constructing = True  # until the forward is read
        self.evaluated: list[str] = []  # modules that are taken to be in evaluation mode

    def inline(self, function: Function, args: list[object], kwargs: dict[str, object]) -> object:
        raise NotImplementedError

    def construct(
        self, body: ast.ClassDef, args: list[object], kwargs: dict[str, object]
    ) -> Module:
        raise NotImplementedError

    # -- dispatch ------------------------------------------------------------------------------

    def call(self, callee: object, args: list[object], kwargs: dict[str, object]) -> object:
        self.graph.call += 1
        match callee:
            case Function():
                return self.inline(callee, args, kwargs)
            case ast.ClassDef():
                return self.construct(callee, args, kwargs)
            case Module():
                return self.applied(callee, args, kwargs)
            case Symbol():
                return self.named(callee.name, args, kwargs)
            case Method(
                owner=Meta() as made, name="float" | "softmax" | "abs" | "exp" | "contiguous"
            ):
                return made
            case Method(owner=Tensor() | Parameter()):
                owner = self.tensor(callee.owner)
                return self.on_tensor(owner, callee.name, args, kwargs)
            case Method(owner=Module() as module):
                return self.on_module(module, callee.name)
            case Hidden(text=text) if text:
                return self.torch(text, args, kwargs)
            case _:
                raise Unknown(f"a call of {type(callee).__name__}")

    def named(self, name: str, args: list[object], kwargs: dict[str, object]) -> object:
        bare = name.rpartition(".")[2]
        if name == "hasattr" and isinstance(args[0], Module):
            return has(args[0], str(args[1]))
        if name in NUMERIC:
            return self.numeric(name, args, kwargs)
        if name.startswith("math.") and not any(isinstance(arg, Tensor) for arg in args):
            function = getattr(math, bare, None)
            if function is None or not all(isinstance(a, int | float) for a in args):
                raise Unknown(name)
            return attempt(function, *args)
        if name.startswith("torch.nn.") and bare[:1].isupper():
            return self.layer(bare, args, kwargs)
        if name.startswith("torch.") and bare in FACTORIES | {"zeros_like", "ones_like"}:
            if not self.constructing and bare == "tensor" and isinstance(args[0], int | float):
                return operations.lift(self.graph, args[0])
            made = meta(bare, args, kwargs) if self.constructing else None
            if made is not None:
                return made
        if name in (prefix + bare for prefix in PREFIXES):
            found = None if name == "torch.linalg.norm" else FUNCTIONS.get(bare)
            return self.function(found, bare, name, args, kwargs)
        return self.torch(name, args, kwargs)

    def numeric(self, name: str, args: list[object], kwargs: dict[str, object]) -> object:
        if any(isinstance(arg, Tensor | Parameter | Meta) for arg in args):
            if name == "len" and isinstance(args[0], Tensor):
                return seen(self.graph, args[0])[0]
            raise Unknown(f"{name}() of a tensor")
        if args and isinstance(args[0], Module) and args[0].children is not None:
            args = [args[0].children, *args[1:]]
        return attempt(NUMERIC[name], *args, **kwargs)

    def layer(self, kind: str, args: list[object], kwargs: dict[str, object]) -> object:
        if kind == "Parameter":
            return args[0] if args and isinstance(args[0], Meta) else Hidden()
        if kind in CONTAINERS:
            items = args if kind == "Sequential" else list(args[0]) if args else []  # type: ignore[call-overload]
            return Module(text="", kind=kind, children=list(items))
        maker = LAYERS.get(kind)
        if maker is None:
            return Module(text="", kind=kind)
        try:
            return Module(text="", kind=kind, layer=maker(*args, **kwargs))
        except (*MISFITS, Unknown):
            return Module(text="", kind=kind)

    def on_tensor(
        self, owner: Tensor, name: str, args: list[object], kwargs: dict[str, object]
    ) -> object:
        if name.endswith("_") and not name.endswith("__"):
            raise Unreadable(f"the forward changes a tensor in place (.{name})")
        known = self.graph[owner.node].shape is not None
        if known and name in ("size", "dim", "numel", "ndimension"):
            shape = seen(self.graph, owner)
            if name == "size":
                return shape[args[0]] if args and isinstance(args[0], int) else shape
            return math.prod(shape) if name == "numel" else len(shape)
        if name in ("to", "type") and args == [Symbol(name="torch.float32")] and not kwargs:
            name, args = "float", []
        if name == "type_as" or (name == "to" and isinstance(args[0], Tensor)):
            name, args = "float", []
        found = operations.METHODS.get(name, FUNCTIONS.get(name))
        if name in ("view_as", "reshape_as") and args and isinstance(args[0], Tensor):
            name, found = "view", FUNCTIONS["view"]
            args = [seen(self.graph, args[0])]
        return self.function(found, name, f".{name}", [owner, *args], kwargs)

    def on_module(self, module: Module, name: str) -> object:
        if name in ("eval", "train"):
            module.evaluating = name == "eval"
            return module
        raise Unknown(f"a module's {name}()")

    # -- modules -------------------------------------------------------------------------------

    def applied(self, module: Module, args: list[object], kwargs: dict[str, object]) -> object:
        """`self.layer(x)`."""
        if module.body is not None:
            body = next(
                n for n in module.body.body
                if isinstance(n, ast.FunctionDef) and n.name == "forward"
            )  # fmt: skip
            return self.inline(Function(body=body, owner=module), args, kwargs)
        if module.kind == "Sequential" and module.children is not None:
            value = args[0]
            for child in module.children:
                value = self.call(child, [value], {})
            return value
        layer = module.layer
        if layer is None:
            return self.torch(module.text, args, kwargs)
        if layer.inplace:
            self.refuse_inputs(args)
        settings: dict[str, object] = {**layer.kwargs, **kwargs}
        for name, shape in layer.parameters.items():
            settings[name] = self.tensor(Parameter(text=f"{module.text}.{name}", shape=shape))
        match layer.function:
            case "batch_norm" | "dropout":
                if module.evaluating:
                    self.evaluated.append(module.text)
                settings["training"] = not module.evaluating
            case "linear" if self.fold_bias and "bias" in settings:
                return self.product_and_bias(args, settings)
        found = FUNCTIONS.get(layer.function)
        return self.function(found, layer.function, module.text, args, settings, text_kwargs=kwargs)

    def product_and_bias(self, args: list[object], settings: dict[str, object]) -> object:
        """A linear layer as PyTorch's product and our addition."""
        operands = [*args, settings["weight"]]
        product = self.torch("torch.nn.functional.linear", operands, {})
        product = self.reshaped(product, "linear", operands, {})
        return operations.apply(self.graph, "add", product, settings["bias"])

    def refuse_inputs(self, args: list[object]) -> None:
        for arg in args:
            if isinstance(arg, Tensor):
                node = self.graph[arg.node]
                if node.op in ("leaf", "view"):
                    raise Unreadable("the forward changes its input in place")

    # -- functions -----------------------------------------------------------------------------

    def function(
        self,
        found: Callable[..., object] | None,
        bare: str,
        text: str,
        args: list[object],
        kwargs: dict[str, object],
        text_kwargs: dict[str, object] | None = None,
    ) -> object:
        """A known function as graph nodes; else, or when its arguments are too special, torch."""
        args = [self.tensor(a) if isinstance(a, Parameter) else a for a in args]
        kwargs = {k: self.tensor(v) if isinstance(v, Parameter) else v for k, v in kwargs.items()}
        if kwargs.get("inplace"):
            self.refuse_inputs(args)
        if bare == "dropout" and (kwargs.get("training") is False or kwargs.get("p") == 0):
            return args[0]
        if found is not None:
            try:
                inspect.signature(found).bind(self.graph, *args, **kwargs)
                return found(self.graph, *args, **kwargs)
            except (Unknown, *MISFITS):
                pass
        value = self.torch(text, args, kwargs if text_kwargs is None else text_kwargs)
        return self.reshaped(value, bare, args, kwargs)


def has(module: Module, name: str) -> bool:
    """Whether the module has such an attribute, as far as its source tells."""
    known = module.attributes.keys() | (module.layer.parameters if module.layer else {})
    return name in known or (module.body is not None and method(module.body, name) is not None)


def attempt(function: Callable[..., object], *args: object, **kwargs: object) -> object:
    """Plain Python on plain values; what does not work is unknown to us."""
    try:
        value = function(*args, **kwargs)
        if isinstance(value, range | enumerate | zip | reversed):
            value = list(value)
    except MISFITS as error:
        raise Unknown(str(error)) from error
    return value


def meta(name: str, args: list[object], kwargs: dict[str, object]) -> Meta | None:
    """The shape of a tensor that is made while constructing, None where it is not plain."""
    dtype = kwargs.get(
        "dtype", Symbol(name="torch.int64" if name == "randint" else "torch.float32")
    )
    kind = dtype.name.removeprefix("torch.") if isinstance(dtype, Symbol) else "unknown"
    if name.endswith("_like"):
        return args[0] if args and isinstance(args[0], Meta) else None
    if name == "tensor":
        value = args[0] if args else None
        if isinstance(value, float):
            return Meta(shape=(), dtype=kind)
        if isinstance(value, list) and value and all(isinstance(v, float) for v in value):
            return Meta(shape=(len(value),), dtype=kind)
        return None
    if name == "randint":
        args = args[-1:]
    if name == "full":
        args = args[:1]
    if "size" in kwargs:
        args = [kwargs["size"]]
    sizes = args[0] if len(args) == 1 and isinstance(args[0], tuple | list) else args
    if not sizes and name != "tensor":
        sizes = ()
    if not isinstance(sizes, tuple | list):
        return None
    shape: Shape = tuple(n for n in sizes if isinstance(n, int))
    return Meta(shape=shape, dtype=kind) if len(shape) == len(sizes) else None
