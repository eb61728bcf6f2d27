"""From a task's source to the graph of its forward, statement by statement.

Nothing is run: the source is followed with shapes in place of tensors.  An operation that no rule
covers becomes a PyTorch expression in the graph.  Only control flow that depends on data, and
changes in place, make the whole forward unreadable.
"""

from __future__ import annotations

import ast
import operator

import msgspec

from actors.agents.recipes.frontend.attributes import Namespace
from actors.agents.recipes.frontend.constructors import ConstructorReader, ReturnedValue
from actors.agents.recipes.frontend.plain_values import evaluate_plain, plain_value
from actors.agents.recipes.frontend.symbolic_values import (
    EndlessLoopError,
    ModuleValue,
    OpaqueValue,
    ParameterValue,
    SuperValue,
    TaskFunction,
    UnsupportedSourceError,
)
from actors.agents.recipes.frontend.task_source import TaskSource
from actors.agents.recipes.frontend.value_paths import flatten_output, tensors_in
from actors.agents.recipes.ir.graph import OperationGraph, UnsupportedOperationError
from actors.agents.recipes.ir.tensor_views import TensorView

MAX_TURNS = 256  # of a loop
MAX_STEPS = 50_000  # statements, over all calls and turns: a few seconds
MAX_DEPTH = 20  # nested calls
# Contexts that do not change numbers.
CONTEXTS_WITHOUT_EFFECT = ("no_grad", "enable_grad", "inference_mode", "set_grad_enabled",
"record_function",
         "nullcontext", "suppress", "range")  # fmt: skip
# Calls whose value is not used and that change no number: a constructor or forward may have them.
CALLS_WITHOUT_EFFECT = ("print", "nn.init.", "torch.nn.init.", "init.", "warnings.warn",
"torch.manual_seed",
            "torch.set_num_threads", "torch.set_printoptions", "torch._assert", "random.seed",
            "logging.", "logger.", "log.", "torch.set_grad_enabled")  # fmt: skip


class ForwardProgram(msgspec.Struct, frozen=True, kw_only=True):
    """A forward that was read: its graph, and the conditions under which the graph is right."""

    source: TaskSource
    graph: OperationGraph
    call_arguments: tuple[str, ...]  # how a call of forward passes them on: "x", "scale=scale"
    guards: tuple[str, ...]  # Python conditions on the arguments that are not tensors
    output: object  # a node's index, or a tuple, list or dict of outputs
    constructor_guard: str  # a Python condition on the constructor's arguments; "": not plain
    left_to_torch: tuple[str, ...]  # operations that stay in PyTorch, for the user
    torch_lines: dict[str, int]  # the first line of the task's file with each of them
    unsupported_tensors: tuple[str, ...]  # tensors that no kernel can take, and why
    eval_mode_modules: tuple[str, ...]  # modules that are taken to be in evaluation mode

    @property
    def results(self) -> tuple[int, ...]:
        """The nodes that the forward returns."""
        return flatten_output(self.output)


class ForwardReader(ConstructorReader):
    """Follows constructors and forwards, statement by statement."""

    def __init__(self, source: TaskSource, graph: OperationGraph, fold_bias: bool) -> None:
        super().__init__(source, graph, fold_bias)
        self.steps = 0

    def read_constants(self) -> None:
        """Evaluate the file's module-level assignments, in order."""
        for node in self.source.assignments():
            self.constructor_statement(node, self.constants)
        for name, value in self.constants.items():
            if isinstance(value, OpaqueValue):
                self.constants[name] = OpaqueValue(text=name)

    # -- functions -----------------------------------------------------------------------------

    def enter_function(self, function: TaskFunction) -> None:
        """Count a nested call; raise for endless recursion and for unknown decorators."""
        if self.depth >= MAX_DEPTH:
            raise EndlessLoopError(f"{function.body.name}() calls itself")
        for decorator in function.body.decorator_list:
            if not is_harmless(ast.unparse(decorator)):
                raise UnsupportedSourceError(
                    f"{function.body.name}() has the decorator @{ast.unparse(decorator)}, which"
                    f" may change what it returns ({self.source.describe_line(decorator.lineno)})"
                )
        self.depth += 1

    def bind_arguments(
        self, function: TaskFunction, args: list[object], kwargs: dict[str, object]
    ) -> Namespace:
        """The arguments under the function's parameter names, with defaults and `super()`."""
        spec = function.body.args
        names: Namespace = dict(function.closure)
        if function.home is not None and function.owner is not None:
            names["super()"] = SuperValue(owner=function.owner, home=function.home)
        params = [arg.arg for arg in spec.posonlyargs + spec.args]
        bound: Namespace = {}
        is_static = any(
            isinstance(d, ast.Name) and d.id == "staticmethod" for d in function.body.decorator_list
        )
        if function.owner is not None and not is_static and params:
            bound[params.pop(0)] = function.owner
        bound.update(zip(params, args, strict=False))
        more = list(args[len(params) :])
        known = {*params, *(arg.arg for arg in spec.kwonlyargs)}
        extra = {name: value for name, value in kwargs.items() if name not in known}
        if (more and spec.vararg is None) or (extra and spec.kwarg is None):
            raise UnsupportedSourceError(
                f"{function.body.name}() is called with more than it takes"
            )
        if spec.vararg is not None:
            bound[spec.vararg.arg] = tuple(more)
        if spec.kwarg is not None:
            bound[spec.kwarg.arg] = extra
        bound.update({name: value for name, value in kwargs.items() if name in known})
        defaults = dict(zip(params[::-1], spec.defaults[::-1], strict=False))
        keyword = [(a.arg, d) for a, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True)]
        for name, default in [*defaults.items(), *keyword]:
            if name not in bound and default is not None:
                bound[name] = self.evaluate(default, dict(function.closure))
        missing = [name for name in params if name not in bound]
        if missing:
            raise UnsupportedSourceError(f"{function.body.name}() is called without {missing[0]}")
        return {**names, **bound}

    def inline(
        self, function: TaskFunction, args: list[object], kwargs: dict[str, object]
    ) -> object:
        """The value of a call of one of the task's functions: its body is read here."""
        names = self.bind_arguments(function, args, kwargs)
        self.enter_function(function)
        try:
            result = self.block(function.body.body, names)
        finally:
            self.depth -= 1
        return None if result is None else result[0]

    # -- statements ----------------------------------------------------------------------------

    def block(self, body: list[ast.stmt], names: Namespace) -> ReturnedValue | None:
        for node in body:
            result = self.statement(node, names)
            if result is not None:
                return result
        return None

    def statement(  # noqa: C901 - one case for each kind of statement
        self, node: ast.stmt, names: Namespace
    ) -> ReturnedValue | None:
        """Follow one statement; return what it returns, None where it does not return."""
        self.count_step(node)
        match node:
            case ast.Return():
                return (None if node.value is None else self.evaluate(node.value, names),)
            case ast.Assign():
                value = self.evaluate(node.value, names)
                for target in node.targets:
                    self.assign(target, value, names)
            case ast.AnnAssign():
                if node.value is not None:
                    self.assign(node.target, self.evaluate(node.value, names), names)
            case ast.AugAssign():
                self.augmented_assignment(node, names)
            case ast.Expr():
                self.expression_statement(node.value, names)
            case ast.If():
                chosen = node.body if plain_value(self.evaluate(node.test, names)) else node.orelse
                return self.block(chosen, names)
            case ast.For():
                return self.for_loop(node, names)
            case ast.With():
                return self.with_statement(node, names)
            case ast.FunctionDef():
                names[node.name] = TaskFunction(body=node, closure=names)
            case ast.Import() | ast.ImportFrom():
                self.import_statement(node, names)
            case ast.Delete():
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        names.pop(target.id, None)
            case ast.Pass() | ast.Assert():
                return None
            case _:
                kind = type(node).__name__.lower()
                raise UnsupportedSourceError(f"a {kind} statement can't be followed")
        return None

    def count_step(self, node: ast.stmt) -> None:
        """Note where the reader is; raise after `MAX_STEPS` statements."""
        self.line = node.lineno
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise EndlessLoopError(f"the module takes more than {MAX_STEPS:,} statements to follow")

    def import_statement(self, node: ast.Import | ast.ImportFrom, names: Namespace) -> None:
        """An import inside a function: its names are missing in the rest of the file."""
        found: dict[str, object] = {}
        self.source.bind_import(node, found)  # type: ignore[arg-type]  # only symbols go in
        for name, symbol in found.items():
            spelled = msgspec.structs.replace(symbol, text="")  # type: ignore[type-var]
            names[name] = spelled if getattr(spelled, "spelling", "") else OpaqueValue()

    def with_statement(self, node: ast.With, names: Namespace) -> ReturnedValue | None:
        """Follow a `with` whose context changes no number; raise for others."""
        for item in node.items:
            text = ast.unparse(item.context_expr)
            if (
                text.split("(")[0].rpartition(".")[2] not in CONTEXTS_WITHOUT_EFFECT
                or item.optional_vars is not None
            ):
                raise UnsupportedSourceError(
                    f"`with {text}` may change what is computed inside of it"
                )
        return self.block(node.body, names)

    def for_loop(self, node: ast.For, names: Namespace) -> ReturnedValue | None:
        """Follow a loop turn by turn; raise where the number of turns is not known."""
        items = self.evaluate(node.iter, names)
        if isinstance(items, ModuleValue):
            items = items.children
        if isinstance(items, dict):
            items = list(items)
        if not isinstance(items, tuple | list) or len(items) > MAX_TURNS or node.orelse:
            raise UnsupportedSourceError(
                f"a loop over {ast.unparse(node.iter)}: how often it turns is not known"
            )
        for item in items:
            self.assign(node.target, item, names)
            result = self.block(node.body, names)
            if result is not None:
                return result
        return None

    def assign(self, target: ast.expr, value: object, names: Namespace) -> None:
        """Bind a target to a value; raise where a forward would change a tensor or a module."""
        match target:
            case ast.Name():
                names[target.id] = value
            case ast.Tuple() | ast.List() if isinstance(value, TensorView):
                for place, part in enumerate(target.elts):
                    self.assign(part, self.subscript(value, place), names)
            case ast.Tuple() | ast.List():
                self.unpack(target, value, names)
            case ast.Attribute():
                owner = self.evaluate(target.value, names)
                if not isinstance(owner, ModuleValue) or not self.constructing:
                    raise UnsupportedSourceError(
                        f"the forward stores something in {ast.unparse(target)}"
                    )
                owner.attributes[target.attr] = value
            case ast.Subscript() if self.constructing:
                holder, key = (
                    self.evaluate(target.value, names),
                    self.evaluate_index(target.slice, names),
                )
                if not isinstance(holder, dict | list) or not isinstance(key, int | str):
                    raise UnsupportedOperationError(f"an assignment to {ast.unparse(target)}")
                evaluate_plain(operator.setitem, holder, key, value)
            case _:
                raise UnsupportedSourceError(f"{ast.unparse(target)} is assigned to, in place")

    def unpack(self, target: ast.Tuple | ast.List, value: object, names: Namespace) -> None:
        """`a, *b = value`."""
        starred = [n for n, part in enumerate(target.elts) if isinstance(part, ast.Starred)]
        if isinstance(value, tuple | list) and len(starred) == 1:
            at, after = starred[0], len(target.elts) - starred[0] - 1
            if len(value) >= at + after:
                rest = len(value) - after
                value = [*value[:at], list(value[at:rest]), *value[rest:]]
        if not isinstance(value, tuple | list) or len(value) != len(target.elts):
            raise UnsupportedSourceError(
                f"{ast.unparse(target)} is unpacked from what is not known"
            )
        for part, item in zip(target.elts, value, strict=True):
            self.assign(part.value if isinstance(part, ast.Starred) else part, item, names)

    def augmented_assignment(self, node: ast.AugAssign, names: Namespace) -> None:
        """`x += value`, which changes a tensor in place for all its names."""
        if not isinstance(node.target, ast.Name):
            if not self.constructing:
                raise UnsupportedSourceError(f"{ast.unparse(node.target)} is changed in place")
            old = self.evaluate(node.target, names)
            value = self.arithmetic(type(node.op), old, self.evaluate(node.value, names))
            return self.assign(node.target, value, names)
        name = node.target.id
        old = self.look_up(name, names)
        other = self.evaluate(node.value, names)
        if isinstance(old, list | tuple) and isinstance(other, list | tuple):
            names[name] = type(old)([*old, *other])
            return None
        if isinstance(old, TensorView | ParameterValue):
            self.require_no_inputs([self.as_tensor(old)])
            self.refuse_views(name, old, names)
        new = self.arithmetic(type(node.op), old, other)
        for each, value in list(names.items()):  # `x += 1` changes the tensor behind every name
            if each == name or (isinstance(old, TensorView) and value is old):
                names[each] = new
        return None

    def refuse_views(self, name: str, changed: object, names: Namespace) -> None:
        """Raise where another name may hold a view, or a copy, of what changes in place."""
        if not isinstance(changed, TensorView):
            raise UnsupportedSourceError(f"a parameter is changed in place ({name})")
        for other, value in names.items():
            for tensor in tensors_in(value):
                if tensor is changed and value is tensor:
                    continue  # another name of the same tensor
                if self.base_of(tensor) == self.base_of(changed):
                    raise UnsupportedSourceError(
                        f"{name} is changed in place while {other} may share its memory"
                    )

    def base_of(self, tensor: TensorView) -> int:
        """The node whose memory a tensor is."""
        node = self.graph[tensor.node]
        return node.args[0] if node.op == "view" else tensor.node

    def is_own_list(self, func: ast.expr, names: Namespace) -> bool:
        """Whether a call appends to a list of the function's own."""
        return (
            isinstance(func, ast.Attribute)
            and func.attr in ("append", "extend", "insert")
            and isinstance(func.value, ast.Name)
            and isinstance(names.get(func.value.id), list)
        )

    def expression_statement(self, node: ast.expr, names: Namespace) -> None:
        """Follow an expression statement; in a forward, only one that changes no number."""
        if isinstance(node, ast.Constant):
            return
        if not isinstance(node, ast.Call):
            raise UnsupportedSourceError(f"`{ast.unparse(node)}` is there for what it does")
        text = ast.unparse(node.func)
        if text.startswith(CALLS_WITHOUT_EFFECT):
            return
        if self.is_own_list(node.func, names) and not node.keywords:
            owner, name = self.evaluate(node.func.value, names), node.func.attr  # type: ignore[attr-defined]
            getattr(owner, name)(*self.evaluate_items(node.args, names))
            return
        if not (self.constructing and isinstance(node.func, ast.Attribute)):
            raise UnsupportedSourceError(
                f"{text}() is called for what it does, not for what it gives"
            )
        self.effect_call(node, node.func, names)


def is_harmless(decorator: str) -> bool:
    """Whether a decorator leaves what a function returns as it is."""
    last = decorator.split("(")[0].rpartition(".")[2]
    return last in CONTEXTS_WITHOUT_EFFECT or decorator.startswith(("torch.jit", "torch.compile",
    "functools")) or (
        last in ("staticmethod", "classmethod", "property", "override", "final", "abstractmethod",
                 "overload", "cache", "lru_cache", "cached_property", "typechecked")
    )  # fmt: skip
