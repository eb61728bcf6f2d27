"""Calls in a task's source: known functions become graph nodes, others a PyTorch expression.

    torch.exp(x)         one node "exp"; the value is a TensorView of it
    self.norm(x)         the nodes of `layer_norm`, with leaves "self.norm.weight" and …bias
    self.conv(x)         one node "torch" with text "self.conv({0})": PyTorch computes it
    self.own_method(x)   the method's body, read with these arguments (`inline`)
    math.sqrt(2.0)       the number itself: plain Python decides

A call that no rule covers raises `UnsupportedOperationError`, and the part around it stays in
PyTorch.  A call that makes the whole forward unreadable raises `UnsupportedSourceError`.
"""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Callable
from contextlib import suppress

import msgspec

from actors.agents.recipes.frontend.nn_modules import construct_layer
from actors.agents.recipes.frontend.plain_values import (
    CONTAINER_FUNCTIONS,
    NUMERIC,
    evaluate_plain,
    evaluate_plain_method,
    is_float32,
    is_instance,
    meta_method,
    meta_tensor,
    refuse_unknown,
)
from actors.agents.recipes.frontend.symbolic_values import (
    ARGUMENT_ERRORS,
    BoundMethod,
    MetaTensor,
    ModuleValue,
    OpaqueValue,
    ParameterValue,
    Symbol,
    TaskFunction,
    TorchLayer,
    UnsupportedSourceError,
)
from actors.agents.recipes.frontend.task_source import BASES_WITHOUT_EFFECT, TaskSource
from actors.agents.recipes.frontend.torch_fallback import TorchFallback
from actors.agents.recipes.ir import elementwise, losses, movement, reductions
from actors.agents.recipes.ir.graph import OperationGraph, UnsupportedOperationError
from actors.agents.recipes.ir.tensor_views import TensorView, identity_view, visible_shape

KNOWN_FUNCTIONS = {
    **elementwise.ELEMENTWISE_FUNCTIONS,
    **reductions.REDUCTION_FUNCTIONS,
    **movement.MOVEMENT_FUNCTIONS,
    **losses.LOSS_FUNCTIONS,
}
TORCH_PREFIXES = ("torch.", "torch.nn.functional.", "torch.special.", "torch.linalg.")
FACTORIES = frozenset(
    ["rand", "randn", "zeros", "ones", "empty", "full", "randint", "tensor", "eye"]
)
TORCH_PREDICATES = ("torch.is_tensor", "torch.jit.is_scripting", "torch.is_grad_enabled")
PYTHON_PREDICATES = ("hasattr", "getattr", "isinstance", "callable")


class CallReader(TorchFallback):
    """The part of the reader that evaluates calls.

    A callee and its arguments are values of `symbolic_values`, `TensorView`s, or plain Python.
    """

    source: TaskSource
    line: int

    def __init__(self, graph: OperationGraph, fold_bias: bool) -> None:
        super().__init__(graph)
        self.changed_in_place: dict[int, int] = {}  # node -> the line that changed it
        self.fold_bias = fold_bias  # a linear layer's bias is added by our kernel
        self.constructing = True  # until the forward is read
        self.eval_mode_modules: list[str] = []  # taken to be in evaluation mode

    def inline(
        self, function: TaskFunction, args: list[object], kwargs: dict[str, object]
    ) -> object:
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
        """The value of `callee(*args, **kwargs)`."""
        self.graph.call += 1
        match callee:
            case TaskFunction():
                return self.inline(callee, args, kwargs)
            case ast.ClassDef():
                return self.construct(callee, args, kwargs)
            case ModuleValue():
                return self.apply_module(callee, args, kwargs)
            case Symbol():
                return self.call_symbol(callee, args, kwargs)
            case BoundMethod(owner=MetaTensor() as made, name=name):
                return meta_method(made, name, args)
            case BoundMethod(owner=dict() | str() as plain, name=name):
                return evaluate_plain_method(plain, name, args, kwargs)
            case BoundMethod(owner=TensorView() | ParameterValue()):
                owner = self.as_tensor(callee.owner)
                return self.tensor_method(owner, callee.name, args, kwargs)
            case BoundMethod(owner=ModuleValue() as module):
                return self.module_method(module, callee.name)
            case OpaqueValue(text=text) if text:
                return self.torch_value(text, args, kwargs)
            case ParameterValue(text=text):
                return self.torch_value(text, args, kwargs)
            case OpaqueValue():
                raise UnsupportedOperationError("a call of something that is not known")
            case _:
                raise UnsupportedOperationError(
                    f"a call of {getattr(callee, 'name', type(callee).__name__)}"
                )

    def object_function(self, name: str, args: list[object]) -> object:
        """hasattr, getattr, isinstance and callable."""
        match name, args:
            case "hasattr", [ModuleValue() as module, str(wanted)]:
                return self.has_attribute(module, wanted)
            case "getattr", [owner, str(wanted)]:
                return self.attribute(owner, wanted)
            case "getattr", [ModuleValue() as module, str(wanted), default]:
                return (
                    self.attribute(module, wanted)
                    if self.has_attribute(module, wanted)
                    else default
                )
            case "isinstance", [value, kinds]:
                return is_instance(value, kinds)
            case "callable", [TaskFunction() | Symbol() | ModuleValue()]:
                return True
        raise UnsupportedOperationError(f"{name}() of such arguments")

    def has_attribute(self, module: ModuleValue, name: str) -> bool:
        """Whether the module has such an attribute, as far as its source tells."""
        known = module.attributes.keys() | (module.layer.parameters if module.layer else {})
        return name in known or (
            module.body is not None and self.source.method(module.body, name) is not None
        )

    def call_symbol(self, symbol: Symbol, args: list[object], kwargs: dict[str, object]) -> object:
        """A call of an imported or built-in name, such as `torch.nn.functional.gelu`."""
        name, bare = symbol.name, symbol.name.rpartition(".")[2]
        if name in PYTHON_PREDICATES:
            return self.object_function(name, args)
        if name in NUMERIC:
            return self.call_numeric(name, args, kwargs)
        if name.startswith("math.") and not any(isinstance(arg, TensorView) for arg in args):
            function = getattr(math, bare, None)
            if function is None or not all(isinstance(a, int | float) for a in args):
                raise UnsupportedOperationError(name)
            return evaluate_plain(function, *args)
        if name.startswith("torch.nn.") and bare[:1].isupper():
            return construct_layer(bare, args, kwargs, self.line)
        if name in TORCH_PREDICATES:
            tensor = args and is_instance(args[0], Symbol(name="torch.Tensor"))
            return bare == "is_tensor" and bool(tensor)
        made = self.factory(name, bare, args, kwargs)
        if made is not None:
            return made
        if name in (prefix + bare for prefix in TORCH_PREFIXES):
            found = None if name == "torch.linalg.norm" else KNOWN_FUNCTIONS.get(bare)
            return self.function_call(found, bare, name, args, kwargs)
        if not symbol.spelling:
            raise UnsupportedOperationError(f"{name}, which is imported inside of a function,")
        return self.torch_value(symbol.spelling, args, kwargs)

    def factory(
        self, name: str, bare: str, args: list[object], kwargs: dict[str, object]
    ) -> object:
        """A tensor that is made without tensors, None where it is left to PyTorch."""
        if not name.startswith("torch.") or bare not in FACTORIES | {"zeros_like", "ones_like"}:
            return None
        if not self.constructing:
            if bare == "tensor" and args and isinstance(args[0], int | float):
                return elementwise.as_tensor(self.graph, args[0])
            return self.filled_tensor(name, bare, args, kwargs)
        made = meta_tensor(bare, args, kwargs)
        return None if made is None else msgspec.structs.replace(made, line=self.line)

    def filled_tensor(
        self, name: str, bare: str, args: list[object], kwargs: dict[str, object]
    ) -> TensorView | None:
        """A float32 tensor that PyTorch makes in the forward, None where its shape is not known."""
        settings = {key: value for key, value in kwargs.items() if key != "device"}
        if bare.endswith("_like"):
            made = None
            if args and isinstance(args[0], TensorView) and not settings:
                node = self.graph[args[0].node]
                if node.shape is not None and not node.is_mask:
                    made = MetaTensor(shape=visible_shape(self.graph, args[0]))
        else:
            made = meta_tensor(bare, args, settings)
        if made is None or made.dtype != "float32" or 0 in made.shape:
            return None
        node = self.graph[self.torch_value(name, args, kwargs).node]
        return identity_view(self.graph, self.graph.torch_node(node.text, node.args, made.shape))

    def call_numeric(self, name: str, args: list[object], kwargs: dict[str, object]) -> object:
        """len, abs, sum, range and their kin, of numbers, containers or tensors."""
        if any(isinstance(arg, TensorView | ParameterValue | MetaTensor) for arg in args):
            if name == "len" and isinstance(args[0], TensorView):
                return visible_shape(self.graph, args[0])[0]
            if name == "abs":
                return self.function_call(KNOWN_FUNCTIONS["abs"], "abs", "torch.abs", args, kwargs)
            if name in ("float", "int", "bool", "round") and not isinstance(args[0], MetaTensor):
                return self.torch_value(name, args, kwargs)
            raise UnsupportedOperationError(f"{name}() of a tensor")
        if name == "sum" and args and isinstance(args[0], tuple | list):
            return self.python_sum(args)
        if args and isinstance(args[0], ModuleValue) and args[0].children is not None:
            args = [args[0].children, *args[1:]]
        if name not in CONTAINER_FUNCTIONS:
            refuse_unknown(args)
        return evaluate_plain(NUMERIC[name], *args, **kwargs)

    def python_sum(self, args: list[object]) -> object:
        """`sum` of a list, of tensors or of numbers."""
        items, start = list(args[0]), args[1] if len(args) > 1 else 0  # type: ignore[call-overload]
        if items and start == 0 and any(isinstance(i, TensorView | ParameterValue) for i in items):
            start = items.pop(0)
        for item in items:
            start = self.arithmetic(ast.Add, start, item)
        return start

    def arithmetic(self, kind: type[ast.operator], left: object, right: object) -> object:
        raise NotImplementedError

    def tensor_method(
        self, owner: TensorView, name: str, args: list[object], kwargs: dict[str, object]
    ) -> object:
        """`x.name(...)` for a tensor x: a size, or a function with x as its first argument."""
        if name.endswith("_") and not name.endswith("__"):
            raise UnsupportedSourceError(f"a tensor is changed in place (.{name})")
        known = self.graph[owner.node].shape is not None
        if known and name in ("size", "dim", "numel", "ndimension"):
            shape = visible_shape(self.graph, owner)
            if name == "size":
                return shape[args[0]] if args and isinstance(args[0], int) else shape
            return math.prod(shape) if name == "numel" else len(shape)
        if name in ("to", "type") and not kwargs and (is_float32(args) or self.is_own_half(args)):
            name, args = "float", []
        if name == "type_as" or (name == "to" and args and isinstance(args[0], TensorView)):
            name, args = "float", []
        found = elementwise.ELEMENTWISE_METHODS.get(name, KNOWN_FUNCTIONS.get(name))
        if name in ("view_as", "reshape_as") and args and isinstance(args[0], TensorView):
            name, found = "view", KNOWN_FUNCTIONS["view"]
            args = [visible_shape(self.graph, args[0])]
        # The graph drops `.contiguous()`: so a view may have to copy.
        text = ".reshape" if name in ("view", "view_as", "reshape_as") else f".{name}"
        return self.function_call(found, name, text, [owner, *args], kwargs)

    def is_own_half(self, args: list[object]) -> bool:
        """Whether the one argument is the half that the module computes in."""
        return len(args) == 1 and getattr(args[0], "name", "") == f"torch.{self.half}"

    def module_method(self, module: ModuleValue, name: str) -> object:
        if name in ("eval", "train"):
            module.evaluating = name == "eval"
            return module
        if name in ("requires_grad_", "float"):
            return module
        raise UnsupportedOperationError(f"a module's {name}()")

    # -- modules -------------------------------------------------------------------------------

    def apply_module(
        self, module: ModuleValue, args: list[object], kwargs: dict[str, object]
    ) -> object:
        """`self.layer(x)`."""
        if module.body is not None:
            found = self.forward_of(module)
            if found is not None:
                return self.inline(found, args, kwargs)
            return self.torch_value(self.module_path(module), args, kwargs)
        if module.kind == "Sequential" and module.children is not None and len(args) == 1:
            value = args[0]
            for child in module.children:
                value = self.call(child, [value], {})
            return value
        if module.layer is None:
            return self.torch_value(self.module_path(module), args, kwargs)
        return self.apply_layer(module, module.layer, args, kwargs)

    def apply_layer(
        self, module: ModuleValue, layer: TorchLayer, args: list[object], kwargs: dict[str, object]
    ) -> object:
        """One of torch's layers, as the function that it stands for."""
        settings: dict[str, object] = {**layer.kwargs, **kwargs}
        if layer.inplace:
            self.require_no_inputs(args)
            settings["inplace"] = True
        for name, shape in layer.parameters.items():
            text = f"{self.module_path(module)}.{name}"
            settings[name] = self.as_tensor(
                ParameterValue(text=text, shape=shape, dtype=layer.dtype, line=module.line)
            )
        match layer.function:
            case "batch_norm" | "dropout":
                if module.evaluating:
                    self.eval_mode_modules.append(module.text)
                settings["training"] = not module.evaluating
            case "linear" if self.fold_bias and "bias" in settings:
                return self.product_and_bias(args, settings)
        found = KNOWN_FUNCTIONS.get(layer.function)
        return self.function_call(
            found, layer.function, module.text, args, settings, text_kwargs=kwargs
        )

    def forward_of(self, module: ModuleValue) -> TaskFunction | None:
        """The forward of one of the task's own classes; None where PyTorch's code defines it."""
        if module.body is None:
            return None
        for body in self.source.mro(module.body):
            for base in body.bases:
                name = ast.unparse(base).split("[")[0].rpartition(".")[2]
                if name not in (*BASES_WITHOUT_EFFECT, *self.source.classes):
                    return None
        found = self.source.method(module.body, "forward")
        if found is None:
            raise UnsupportedSourceError(f"class {module.body.name} has no forward")
        return TaskFunction(body=found[0], owner=module, home=found[1])

    def module_path(self, module: ModuleValue) -> str:
        """The text by which ModelNew reaches a module, such as "self.layers[0]"."""
        if not module.text:
            raise UnsupportedSourceError(f"a {module.kind} is made while the forward runs")
        return module.text

    def product_and_bias(self, args: list[object], settings: dict[str, object]) -> object:
        """A linear layer as PyTorch's product and our addition."""
        operands = [*args, settings["weight"]]
        product = self.torch_value("torch.nn.functional.linear", operands, {})
        product = self.with_inferred_shape(product, "linear", operands, {})
        return elementwise.apply(self.graph, "add", product, settings["bias"])

    def require_no_inputs(self, args: list[object]) -> None:
        """Raise where a tensor that is changed in place is an input or a view."""
        for arg in args:
            if isinstance(arg, TensorView):
                node = self.graph[arg.node]
                if node.op in ("leaf", "view"):
                    raise UnsupportedSourceError(
                        "an input, or a view of a tensor, is changed in place"
                    )

    # -- functions -----------------------------------------------------------------------------

    def function_call(
        self,
        found: Callable[..., object] | None,
        bare: str,
        text: str,
        args: list[object],
        kwargs: dict[str, object],
        text_kwargs: dict[str, object] | None = None,
    ) -> object:
        """A call of a function on tensors: `found`'s graph nodes, or a PyTorch expression.

        `found`: the graph function or None; where it does not take these arguments, the call stays
        in PyTorch as `text(args, **text_kwargs)`.  `bare`: its name.
        """
        args = [self.as_tensor(a) if isinstance(a, ParameterValue) else a for a in args]
        kwargs = {
            k: self.as_tensor(v) if isinstance(v, ParameterValue) else v for k, v in kwargs.items()
        }
        if kwargs.get("inplace"):
            self.require_no_inputs(args)
        if bare == "dropout" and (kwargs.get("training") is False or kwargs.get("p") == 0):
            return args[0]
        made: object = None
        if found is not None:
            with suppress(UnsupportedOperationError, *ARGUMENT_ERRORS):
                inspect.signature(found).bind(self.graph, *args, **kwargs)
                made = found(self.graph, *args, **kwargs)
        if isinstance(made, tuple) and bare in ("max", "min"):
            made = (made[0], self.extremum_indices(text, args, kwargs))
        if made is None:
            value = self.torch_value(text, args, kwargs if text_kwargs is None else text_kwargs)
            made = self.with_inferred_shape(value, bare, args, kwargs)
        if kwargs.get("inplace") and args and isinstance(args[0], TensorView) and made != args[0]:
            self.changed_in_place[args[0].node] = self.line
        if isinstance(made, TensorView):
            self.graph.function_of.setdefault(made.node, bare)
        return made
