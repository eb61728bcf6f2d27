"""Calls in a task's source: what is known becomes graph nodes, the rest a PyTorch expression."""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Callable

from actors.agents.recipes import losses, moves, operations, rowwise
from actors.agents.recipes.frames import Tensor, plain, seen, stored, whole
from actors.agents.recipes.graph import Graph, Shape, Unknown
from actors.agents.recipes.modules import LAYERS
from actors.agents.recipes.objects import (
    Function,
    Hidden,
    Meta,
    Method,
    Module,
    Parameter,
    Symbol,
    Unreadable,
)
from actors.agents.recipes.shapes import PRODUCTS, RULES

FUNCTIONS = {**operations.FUNCTIONS, **rowwise.FUNCTIONS, **moves.FUNCTIONS, **losses.FUNCTIONS}
PREFIXES = ("torch.", "torch.nn.functional.", "torch.special.", "torch.linalg.")
FACTORIES = frozenset("rand randn zeros ones empty full randint tensor eye".split())
CONTAINERS = ("Sequential", "ModuleList")
NUMERIC = {
    "len": len, "int": int, "float": float, "bool": bool, "abs": abs, "min": min, "max": max,
    "round": round, "tuple": tuple, "list": list, "range": range, "enumerate": enumerate,
    "zip": zip, "sum": sum, "str": str, "reversed": reversed, "sorted": sorted,
}  # fmt: skip
MISFITS = (TypeError, ValueError, IndexError, KeyError, ZeroDivisionError, OverflowError)


class Calling:
    """The part of the reader that knows what calls mean."""

    def __init__(self, graph: Graph, fold_bias: bool) -> None:
        self.graph = graph
        self.fold_bias = fold_bias
        self.kept: list[str] = []  # what stays in PyTorch, for people
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
            case Method(owner=Tensor() | Parameter()):
                owner = self.tensor(callee.owner)
                return self.method(owner, callee.name, args, kwargs)
            case Method(owner=Module() as module):
                return self.on_module(module, callee.name)
            case Hidden(text=text) if text:
                return self.torch(text, args, kwargs)
            case _:
                raise Unknown(f"a call of {type(callee).__name__}")

    def named(self, name: str, args: list[object], kwargs: dict[str, object]) -> object:
        bare = name.rpartition(".")[2]
        if name in NUMERIC:
            return self.numeric(name, args, kwargs)
        if name.startswith("math."):
            function = getattr(math, bare, None)
            if function is None or not all(isinstance(a, int | float) for a in args):
                raise Unknown(name)
            return attempt(function, *args)
        if name.startswith("torch.nn.") and bare[:1].isupper():
            return self.layer(bare, args, kwargs)
        if name.startswith("torch.") and bare in FACTORIES | {"zeros_like", "ones_like"}:
            made = meta(bare, args, kwargs)
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

    def method(
        self, owner: Tensor, name: str, args: list[object], kwargs: dict[str, object]
    ) -> object:
        if name.endswith("_") and not name.endswith("__"):
            raise Unreadable(f"the forward changes a tensor in place (.{name})")
        if name in ("size", "dim", "numel", "ndimension"):
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
        settings: dict[str, object] = {**layer.kwargs, **kwargs}
        for name, shape in layer.parameters.items():
            settings[name] = self.tensor(Parameter(text=f"{module.text}.{name}", shape=shape))
        if layer.function in ("batch_norm", "dropout") and module.evaluating:
            self.evaluated.append(module.text)
        if layer.function == "batch_norm":
            settings["training"] = not module.evaluating
        if layer.function == "dropout" and (module.evaluating or layer.kwargs["p"] == 0):
            return args[0]
        if layer.function == "linear" and self.fold_bias and "bias" in settings:
            bias = settings.pop("bias")
            product = self.torch("torch.nn.functional.linear", [*args, settings["weight"]], {})
            return operations.apply(self.graph, "add", self.reshaped(product, "linear", [
                *args, settings["weight"]], {}), bias)  # fmt: skip
        if layer.inplace:
            self.refuse_inputs(args)
        found = FUNCTIONS.get(layer.function)
        return self.function(found, layer.function, module.text, args, settings, text_kwargs=kwargs)

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
            except (Unknown, AssertionError, *MISFITS):
                pass
        value = self.torch(text, args, kwargs if text_kwargs is None else text_kwargs)
        return self.reshaped(value, bare, args, kwargs)

    def reshaped(
        self, value: Tensor, bare: str, args: list[object], kwargs: dict[str, object]
    ) -> Tensor:
        """The torch expression's value with its shape, where a rule gives it."""
        rule = RULES.get(bare)
        if rule is None:
            return value
        try:
            shape = rule(*map(self.shape_of, args), **{
                k: self.shape_of(v) for k, v in kwargs.items() if k != "training"
            })  # fmt: skip
        except (Unknown, AssertionError, *MISFITS):
            return value
        node = self.graph[value.node]
        fresh = bare in PRODUCTS
        return whole(self.graph, self.graph.torch(node.text, node.args, shape, fresh=fresh))

    def shape_of(self, value: object) -> object:
        if isinstance(value, Tensor):
            return seen(self.graph, value)
        if isinstance(value, tuple | list):
            return tuple(self.shape_of(item) for item in value)
        return value

    def torch(self, text: str, args: list[object], kwargs: dict[str, object]) -> Tensor:
        """An expression that PyTorch evaluates: `text(args)`, or a method for ".text"."""
        nodes: list[int] = []
        words = [self.rendered(arg, nodes) for arg in args]
        words += [f"{name}={self.rendered(value, nodes)}" for name, value in kwargs.items()]
        if text.startswith("."):
            whole_text = f"{words[0]}{text}({', '.join(words[1:])})"
        else:
            whole_text = f"{text}({', '.join(words)})"
        self.kept.append(text.removeprefix("torch.nn.functional."))
        return self.kept_node(whole_text, nodes)

    def kept_node(self, text: str, nodes: list[int]) -> Tensor:
        # two equal texts may be two draws of a dropout: each is a node of its own
        unique = text + " " * (len(self.kept) % 997)
        return Tensor(node=self.graph.torch(unique, tuple(nodes), None), groups=())

    def rendered(self, value: object, nodes: list[int]) -> str:
        """Python text for an argument, with a placeholder for each tensor."""
        match value:
            case Tensor():
                if self.graph[value.node].op == "const":
                    return repr(self.graph[value.node].value)
                node = value.node
                if self.graph[node].shape is not None and not plain(self.graph, value):
                    node = stored(self.graph, value)
                if self.graph[node].mask:
                    raise Unreadable("a comparison's result is used by what stays in PyTorch")
                nodes.append(node)
                return f"{{{len(nodes) - 1}}}"
            case bool() | int() | str() | None:
                return repr(value)
            case float():
                return repr(value) if math.isfinite(value) else f"float('{value}')"
            case slice():
                parts = (value.start, value.stop, value.step)
                return f"slice({', '.join(self.rendered(part, nodes) for part in parts)})"
            case tuple() | list():
                inner = ", ".join(self.rendered(item, nodes) for item in value)
                if isinstance(value, list):
                    return f"[{inner}]"
                return f"({inner},)" if len(value) == 1 else f"({inner})"
            case Symbol(name=text) | Hidden(text=text) | Module(text=text) if text:
                return text
            case Parameter():
                return self.rendered(self.tensor(value), nodes)
            case _ if value is ...:
                return "..."
        raise Unreadable("an argument that can't be written down again")

    def tensor(self, value: object) -> Tensor:
        """A tensor for a parameter or tensor; its shape may be unknown."""
        if isinstance(value, Parameter):
            if value.shape is None:
                return Tensor(node=self.graph.torch(value.text, (), None), groups=())
            return whole(self.graph, self.graph.leaf(value.text, value.shape))
        if isinstance(value, Tensor):
            return value
        raise Unknown(f"a {type(value).__name__} where a tensor is wanted")


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
    assert isinstance(sizes, tuple | list)
    shape: Shape = tuple(n for n in sizes if isinstance(n, int))
    return Meta(shape=shape, dtype=kind) if len(shape) == len(sizes) else None
