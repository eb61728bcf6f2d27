"""Calls in a task's source: what is known becomes graph nodes, the rest a PyTorch expression."""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Callable

import msgspec

from actors.agents.recipes import losses, moves, operations, rowwise
from actors.agents.recipes.frames import Tensor, seen, whole
from actors.agents.recipes.graph import Graph, Unknown
from actors.agents.recipes.leaving import Leaving
from actors.agents.recipes.modules import LAYERS
from actors.agents.recipes.objects import (
    MISFITS,
    Function,
    Hidden,
    Layer,
    Meta,
    Method,
    Module,
    Parameter,
    Symbol,
    Unreadable,
)
from actors.agents.recipes.plain_values import (
    HOLDING,
    NUMERIC,
    attempt,
    attempt_method,
    is_float32,
    is_instance,
    meta,
    meta_method,
    refuse_unknown,
)
from actors.agents.recipes.source import HARMLESS, Source

FUNCTIONS = {**operations.FUNCTIONS, **rowwise.FUNCTIONS, **moves.FUNCTIONS, **losses.FUNCTIONS}
PREFIXES = ("torch.", "torch.nn.functional.", "torch.special.", "torch.linalg.")
FACTORIES = frozenset(
    ["rand", "randn", "zeros", "ones", "empty", "full", "randint", "tensor", "eye"]
)
ASKING = ("torch.is_tensor", "torch.jit.is_scripting", "torch.is_grad_enabled")
BUILT_IN = ("hasattr", "getattr", "isinstance", "callable")
CONTAINERS = ("Sequential", "ModuleList")


class Calling(Leaving):
    """The part of the reader that knows what calls mean."""

    source: Source
    line: int

    def __init__(self, graph: Graph, fold_bias: bool) -> None:
        super().__init__(graph)
        self.spoilt: dict[int, int] = {}  # nodes that were changed in place, and on which line
        self.fold_bias = fold_bias
        self.constructing = True  # until the forward is read
        self.evaluated: list[str] = []  # modules that are taken to be in evaluation mode

    def inline(self, function: Function, args: list[object], kwargs: dict[str, object]) -> object:
        raise NotImplementedError

    def construct(
        self, body: ast.ClassDef, args: list[object], kwargs: dict[str, object]
    ) -> object:
        raise NotImplementedError

    def attribute(self, owner: object, name: str) -> object:
        raise NotImplementedError

    # -- dispatch ------------------------------------------------------------------------------

    def call(  # noqa: C901 - one case for each kind of callee
        self, callee: object, args: list[object], kwargs: dict[str, object]
    ) -> object:
        self.graph.call += 1
        match callee:
            case Function():
                return self.inline(callee, args, kwargs)
            case ast.ClassDef():
                return self.construct(callee, args, kwargs)
            case Module():
                return self.applied(callee, args, kwargs)
            case Symbol():
                return self.named(callee, args, kwargs)
            case Method(owner=Meta() as made, name=name):
                return meta_method(made, name)
            case Method(owner=dict() | str() as plain, name=name):
                return attempt_method(plain, name, args, kwargs)
            case Method(owner=Tensor() | Parameter()):
                owner = self.tensor(callee.owner)
                return self.on_tensor(owner, callee.name, args, kwargs)
            case Method(owner=Module() as module):
                return self.on_module(module, callee.name)
            case Hidden(text=text) if text:
                return self.torch(text, args, kwargs)
            case Parameter(text=text):
                return self.torch(text, args, kwargs)
            case Hidden():
                raise Unknown("a call of something that is not known")
            case _:
                raise Unknown(f"a call of {getattr(callee, 'name', type(callee).__name__)}")

    def built_in(self, name: str, args: list[object]) -> object:
        """Python's own functions that look at objects."""
        match name, args:
            case "hasattr", [Module() as module, str(wanted)]:
                return self.has(module, wanted)
            case "getattr", [owner, str(wanted)]:
                return self.attribute(owner, wanted)
            case "getattr", [Module() as module, str(wanted), default]:
                return self.attribute(module, wanted) if self.has(module, wanted) else default
            case "isinstance", [value, kinds]:
                return is_instance(value, kinds)
            case "callable", [Function() | Symbol() | Module()]:
                return True
        raise Unknown(f"{name}() of such arguments")

    def has(self, module: Module, name: str) -> bool:
        """Whether the module has such an attribute, as far as its source tells."""
        known = module.attributes.keys() | (module.layer.parameters if module.layer else {})
        return name in known or (
            module.body is not None and self.source.method(module.body, name) is not None
        )

    def named(self, symbol: Symbol, args: list[object], kwargs: dict[str, object]) -> object:
        name, bare = symbol.name, symbol.name.rpartition(".")[2]
        if name in BUILT_IN:
            return self.built_in(name, args)
        if name in NUMERIC:
            return self.numeric(name, args, kwargs)
        if name.startswith("math.") and not any(isinstance(arg, Tensor) for arg in args):
            function = getattr(math, bare, None)
            if function is None or not all(isinstance(a, int | float) for a in args):
                raise Unknown(name)
            return attempt(function, *args)
        if name.startswith("torch.nn.") and bare[:1].isupper():
            return self.layer(bare, args, kwargs)
        if name in ASKING:
            tensor = args and is_instance(args[0], Symbol(name="torch.Tensor"))
            return bare == "is_tensor" and bool(tensor)
        made = self.factory(name, bare, args, kwargs)
        if made is not None:
            return made
        if name in (prefix + bare for prefix in PREFIXES):
            found = None if name == "torch.linalg.norm" else FUNCTIONS.get(bare)
            return self.function(found, bare, name, args, kwargs)
        if not symbol.spelled:
            raise Unknown(f"{name}, which is imported inside of a function,")
        return self.torch(symbol.spelled, args, kwargs)

    def factory(
        self, name: str, bare: str, args: list[object], kwargs: dict[str, object]
    ) -> object:
        """A tensor that is made from nothing, None where it is left to PyTorch."""
        if not name.startswith("torch.") or bare not in FACTORIES | {"zeros_like", "ones_like"}:
            return None
        if not self.constructing:
            if bare == "tensor" and args and isinstance(args[0], int | float):
                return operations.lift(self.graph, args[0])
            return self.filled(name, bare, args, kwargs)
        made = meta(bare, args, kwargs)
        return None if made is None else msgspec.structs.replace(made, line=self.line)

    def filled(
        self, name: str, bare: str, args: list[object], kwargs: dict[str, object]
    ) -> Tensor | None:
        """A float32 tensor that PyTorch makes in the forward, None where its shape is not known."""
        told = {key: value for key, value in kwargs.items() if key != "device"}
        if bare.endswith("_like"):
            node = self.graph[args[0].node] if args and isinstance(args[0], Tensor) else None
            known = node is not None and node.shape is not None and not node.mask
            made = Meta(shape=seen(self.graph, args[0])) if known and not told else None  # type: ignore[arg-type]
        else:
            made = meta(bare, args, told)
        if made is None or made.dtype != "float32" or 0 in made.shape:
            return None
        node = self.graph[self.torch(name, args, kwargs).node]
        return whole(self.graph, self.graph.torch(node.text, node.args, made.shape))

    def numeric(self, name: str, args: list[object], kwargs: dict[str, object]) -> object:
        if any(isinstance(arg, Tensor | Parameter | Meta) for arg in args):
            if name == "len" and isinstance(args[0], Tensor):
                return seen(self.graph, args[0])[0]
            if name == "abs":
                return self.function(FUNCTIONS["abs"], "abs", "torch.abs", args, kwargs)
            if name in ("float", "int", "bool", "round") and not isinstance(args[0], Meta):
                return self.torch(name, args, kwargs)
            raise Unknown(f"{name}() of a tensor")
        if name == "sum" and args and isinstance(args[0], tuple | list):
            return self.total(args)
        if args and isinstance(args[0], Module) and args[0].children is not None:
            args = [args[0].children, *args[1:]]
        if name not in HOLDING:
            refuse_unknown(args)
        return attempt(NUMERIC[name], *args, **kwargs)

    def total(self, args: list[object]) -> object:
        """`sum` of a list, of tensors or of numbers."""
        items, start = list(args[0]), args[1] if len(args) > 1 else 0  # type: ignore[call-overload]
        if items and start == 0 and any(isinstance(i, Tensor | Parameter) for i in items):
            start = items.pop(0)
        for item in items:
            start = self.arithmetic(ast.Add, start, item)
        return start

    def arithmetic(self, kind: type[ast.operator], left: object, right: object) -> object:
        raise NotImplementedError

    def layer(self, kind: str, args: list[object], kwargs: dict[str, object]) -> object:
        if kind in ("Parameter", "Buffer"):
            return args[0] if args and isinstance(args[0], Meta) else Hidden()
        if kind == "ModuleDict" and args and isinstance(args[0], dict):
            return dict(args[0])
        if kind == "ParameterList" and args and isinstance(args[0], list):
            return list(args[0])
        if kind in CONTAINERS:
            items = args if kind == "Sequential" else args[0] if args else []
            if isinstance(items, list | tuple) and all(isinstance(i, Module) for i in items):
                return Module(text="", kind=kind, children=list(items), line=self.line)
            return Module(text="", kind=kind, line=self.line)
        maker = LAYERS.get(kind)
        if maker is None:
            return Module(text="", kind=kind, line=self.line)
        try:
            layer = maker(*args, **kwargs)
        except (*MISFITS, Unknown):
            return Module(text="", kind=kind, line=self.line)
        dtype = kwargs.get("dtype")
        if dtype is not None:
            known = dtype.name.removeprefix("torch.") if isinstance(dtype, Symbol) else "unknown"
            layer = msgspec.structs.replace(layer, dtype=known)
        return Module(text="", kind=kind, layer=layer, line=self.line)

    def on_tensor(
        self, owner: Tensor, name: str, args: list[object], kwargs: dict[str, object]
    ) -> object:
        if name.endswith("_") and not name.endswith("__"):
            raise Unreadable(f"a tensor is changed in place (.{name})")
        known = self.graph[owner.node].shape is not None
        if known and name in ("size", "dim", "numel", "ndimension"):
            shape = seen(self.graph, owner)
            if name == "size":
                return shape[args[0]] if args and isinstance(args[0], int) else shape
            return math.prod(shape) if name == "numel" else len(shape)
        if name in ("to", "type") and is_float32(args) and not kwargs:
            name, args = "float", []
        if name == "type_as" or (name == "to" and args and isinstance(args[0], Tensor)):
            name, args = "float", []
        found = operations.METHODS.get(name, FUNCTIONS.get(name))
        if name in ("view_as", "reshape_as") and args and isinstance(args[0], Tensor):
            name, found = "view", FUNCTIONS["view"]
            args = [seen(self.graph, args[0])]
        # `same` drops what makes memory contiguous: then a view may have to copy.
        text = ".reshape" if name in ("view", "view_as", "reshape_as") else f".{name}"
        return self.function(found, name, text, [owner, *args], kwargs)

    def on_module(self, module: Module, name: str) -> object:
        if name in ("eval", "train"):
            module.evaluating = name == "eval"
            return module
        if name in ("requires_grad_", "float"):
            return module
        raise Unknown(f"a module's {name}()")

    # -- modules -------------------------------------------------------------------------------

    def applied(self, module: Module, args: list[object], kwargs: dict[str, object]) -> object:
        """`self.layer(x)`."""
        if module.body is not None:
            found = self.forward_of(module)
            if found is not None:
                return self.inline(found, args, kwargs)
            return self.torch(self.reached(module), args, kwargs)
        if module.kind == "Sequential" and module.children is not None and len(args) == 1:
            value = args[0]
            for child in module.children:
                value = self.call(child, [value], {})
            return value
        if module.layer is None:
            return self.torch(self.reached(module), args, kwargs)
        return self.layered(module, module.layer, args, kwargs)

    def layered(
        self, module: Module, layer: Layer, args: list[object], kwargs: dict[str, object]
    ) -> object:
        """One of torch's layers, as the function that it stands for."""
        settings: dict[str, object] = {**layer.kwargs, **kwargs}
        if layer.inplace:
            self.refuse_inputs(args)
            settings["inplace"] = True
        for name, shape in layer.parameters.items():
            text = f"{self.reached(module)}.{name}"
            settings[name] = self.tensor(
                Parameter(text=text, shape=shape, dtype=layer.dtype, line=module.line)
            )
        match layer.function:
            case "batch_norm" | "dropout":
                if module.evaluating:
                    self.evaluated.append(module.text)
                settings["training"] = not module.evaluating
            case "linear" if self.fold_bias and "bias" in settings:
                return self.product_and_bias(args, settings)
        found = FUNCTIONS.get(layer.function)
        return self.function(found, layer.function, module.text, args, settings, text_kwargs=kwargs)

    def forward_of(self, module: Module) -> Function | None:
        """The forward of one of the task's own classes; None where PyTorch's own code has it."""
        if module.body is None:
            return None
        for body in self.source.mro(module.body):
            for base in body.bases:
                name = ast.unparse(base).split("[")[0].rpartition(".")[2]
                if name not in (*HARMLESS, *self.source.classes):
                    return None
        found = self.source.method(module.body, "forward")
        if found is None:
            raise Unreadable(f"class {module.body.name} has no forward")
        return Function(body=found[0], owner=module, home=found[1])

    def reached(self, module: Module) -> str:
        if not module.text:
            raise Unreadable(f"a {module.kind} is made while the forward runs")
        return module.text

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
                    raise Unreadable("an input, or a view of a tensor, is changed in place")

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
        made: object = None
        if found is not None:
            try:
                inspect.signature(found).bind(self.graph, *args, **kwargs)
                made = found(self.graph, *args, **kwargs)
            except (Unknown, *MISFITS):
                made = None
        if made is None:
            value = self.torch(text, args, kwargs if text_kwargs is None else text_kwargs)
            made = self.reshaped(value, bare, args, kwargs)
        if kwargs.get("inplace") and args and isinstance(args[0], Tensor) and made != args[0]:
            self.spoilt[args[0].node] = self.line
        return made
