"""From a task's source to the graph of its forward.

Nothing is run: the source is followed with shapes in place of tensors.  What is not understood
becomes a PyTorch expression in the graph; only control flow that depends on data, and changes in
place, make the whole forward unreadable.
"""

from __future__ import annotations

import ast
import operator

import msgspec

from actors.agents.recipes.constructing import Constructing, Returned
from actors.agents.recipes.frames import Tensor
from actors.agents.recipes.graph import Graph, Unknown
from actors.agents.recipes.members import Names
from actors.agents.recipes.objects import (
    Endless,
    Function,
    Hidden,
    Module,
    Parameter,
    Parent,
    Unreadable,
)
from actors.agents.recipes.plain_values import attempt, plainly
from actors.agents.recipes.reaching import flat, tensors_in
from actors.agents.recipes.source import Source

MOST_TURNS = 256  # of a loop
MOST_STEPS = 50_000  # statements, over all calls and turns: seconds
DEEPEST = 20  # functions in functions
# Contexts that leave numbers as they are.
QUIET = ("no_grad", "enable_grad", "inference_mode", "set_grad_enabled", "record_function",
         "nullcontext", "suppress", "range")  # fmt: skip
# What a constructor or a forward may call for what it does: no number depends on it.
HARMLESS = ("print", "nn.init.", "torch.nn.init.", "init.", "warnings.warn", "torch.manual_seed",
            "torch.set_num_threads", "torch.set_printoptions", "torch._assert", "random.seed",
            "logging.", "logger.", "log.", "torch.set_grad_enabled")  # fmt: skip


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """A forward, read."""

    source: Source
    graph: Graph
    given: tuple[str, ...]  # the names of forward's arguments, as a call of it passes them on
    guards: tuple[str, ...]  # what has to be true of arguments that are no tensors, in Python
    output: object  # a node's index, or a tuple or list of outputs
    made_for: str  # a condition on the constructor's arguments, "" where they are not plain
    kept: tuple[str, ...]  # what stays in PyTorch
    kept_at: dict[str, int]  # the first line on which each of them stands
    misfits: tuple[str, ...]  # tensors that no kernel can take, in words
    evaluated: tuple[str, ...]  # modules that are taken to be in evaluation mode

    @property
    def results(self) -> tuple[int, ...]:
        """The nodes that are returned."""
        return flat(self.output)


class Reader(Constructing):
    """Follows constructors and forwards, statement by statement."""

    def __init__(self, source: Source, graph: Graph, fold_bias: bool) -> None:
        super().__init__(source, graph, fold_bias)
        self.steps = 0

    def read_constants(self) -> None:
        """The file's own names, in order."""
        for node in self.source.assignments():
            self.attempt(node, self.constants)
        for name, value in self.constants.items():
            if isinstance(value, Hidden):
                self.constants[name] = Hidden(text=name)

    # -- functions -----------------------------------------------------------------------------

    def enter(self, function: Function) -> None:
        if self.depth >= DEEPEST:
            raise Endless(f"{function.body.name}() calls itself")
        for decorator in function.body.decorator_list:
            if not is_harmless(ast.unparse(decorator)):
                raise Unreadable(
                    f"{function.body.name}() has the decorator @{ast.unparse(decorator)}, which"
                    f" may change what it returns ({self.source.at(decorator.lineno)})"
                )
        self.depth += 1

    def bound(self, function: Function, args: list[object], kwargs: dict[str, object]) -> Names:
        """The arguments under the function's own names."""
        spec = function.body.args
        names: Names = dict(function.closure)
        if function.home is not None and function.owner is not None:
            names["super()"] = Parent(owner=function.owner, home=function.home)
        params = [arg.arg for arg in spec.posonlyargs + spec.args]
        taken: Names = {}
        static = any(
            isinstance(d, ast.Name) and d.id == "staticmethod" for d in function.body.decorator_list
        )
        if function.owner is not None and not static and params:
            taken[params.pop(0)] = function.owner
        taken.update(zip(params, args, strict=False))
        more = list(args[len(params) :])
        known = {*params, *(arg.arg for arg in spec.kwonlyargs)}
        extra = {name: value for name, value in kwargs.items() if name not in known}
        if (more and spec.vararg is None) or (extra and spec.kwarg is None):
            raise Unreadable(f"{function.body.name}() is called with more than it takes")
        if spec.vararg is not None:
            taken[spec.vararg.arg] = tuple(more)
        if spec.kwarg is not None:
            taken[spec.kwarg.arg] = extra
        taken.update({name: value for name, value in kwargs.items() if name in known})
        defaults = dict(zip(params[::-1], spec.defaults[::-1], strict=False))
        keyword = [(a.arg, d) for a, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True)]
        for name, default in [*defaults.items(), *keyword]:
            if name not in taken and default is not None:
                taken[name] = self.value(default, dict(function.closure))
        missing = [name for name in params if name not in taken]
        if missing:
            raise Unreadable(f"{function.body.name}() is called without {missing[0]}")
        return {**names, **taken}

    def inline(self, function: Function, args: list[object], kwargs: dict[str, object]) -> object:
        names = self.bound(function, args, kwargs)
        self.enter(function)
        try:
            result = self.block(function.body.body, names)
        finally:
            self.depth -= 1
        return None if result is None else result[0]

    # -- statements ----------------------------------------------------------------------------

    def block(self, body: list[ast.stmt], names: Names) -> Returned | None:
        for node in body:
            result = self.statement(node, names)
            if result is not None:
                return result
        return None

    def statement(  # noqa: C901 - one case for each kind of statement
        self, node: ast.stmt, names: Names
    ) -> Returned | None:
        self.line = node.lineno
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise Endless(f"the module takes more than {MOST_STEPS:,} statements to follow")
        match node:
            case ast.Return():
                return (None if node.value is None else self.value(node.value, names),)
            case ast.Assign():
                value = self.value(node.value, names)
                for target in node.targets:
                    self.assign(target, value, names)
            case ast.AnnAssign():
                if node.value is not None:
                    self.assign(node.target, self.value(node.value, names), names)
            case ast.AugAssign():
                self.augment(node, names)
            case ast.Expr():
                self.bare(node.value, names)
            case ast.If():
                chosen = node.body if plainly(self.value(node.test, names)) else node.orelse
                return self.block(chosen, names)
            case ast.For():
                return self.loop(node, names)
            case ast.With():
                return self.within(node, names)
            case ast.FunctionDef():
                names[node.name] = Function(body=node, closure=names)
            case ast.Import() | ast.ImportFrom():
                self.imported(node, names)
            case ast.Delete():
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        names.pop(target.id, None)
            case ast.Pass() | ast.Assert():
                return None
            case _:
                kind = type(node).__name__.lower()
                raise Unreadable(f"a {kind} statement can't be followed")
        return None

    def imported(self, node: ast.Import | ast.ImportFrom, names: Names) -> None:
        """An import inside a function: its names are not there in the rest of the file."""
        found: dict[str, object] = {}
        self.source.bind_import(node, found)  # type: ignore[arg-type]  # only symbols go in
        for name, symbol in found.items():
            spelled = msgspec.structs.replace(symbol, text="")  # type: ignore[type-var]
            names[name] = spelled if getattr(spelled, "spelled", "") else Hidden()

    def within(self, node: ast.With, names: Names) -> Returned | None:
        for item in node.items:
            text = ast.unparse(item.context_expr)
            if text.split("(")[0].rpartition(".")[2] not in QUIET or item.optional_vars is not None:
                raise Unreadable(f"`with {text}` may change what is computed inside of it")
        return self.block(node.body, names)

    def loop(self, node: ast.For, names: Names) -> Returned | None:
        items = self.value(node.iter, names)
        if isinstance(items, Module):
            items = items.children
        if isinstance(items, dict):
            items = list(items)
        if not isinstance(items, tuple | list) or len(items) > MOST_TURNS or node.orelse:
            raise Unreadable(
                f"a loop over {ast.unparse(node.iter)}: how often it turns is not known"
            )
        for item in items:
            self.assign(node.target, item, names)
            result = self.block(node.body, names)
            if result is not None:
                return result
        return None

    def assign(self, target: ast.expr, value: object, names: Names) -> None:
        match target:
            case ast.Name():
                names[target.id] = value
            case ast.Tuple() | ast.List() if isinstance(value, Tensor):
                for place, part in enumerate(target.elts):
                    self.assign(part, self.item(value, place), names)
            case ast.Tuple() | ast.List():
                self.unpack(target, value, names)
            case ast.Attribute():
                owner = self.value(target.value, names)
                if not isinstance(owner, Module) or not self.constructing:
                    raise Unreadable(f"the forward stores something in {ast.unparse(target)}")
                owner.attributes[target.attr] = value
            case ast.Subscript() if self.constructing:
                holder, key = self.value(target.value, names), self.index(target.slice, names)
                if not isinstance(holder, dict | list) or not isinstance(key, int | str):
                    raise Unknown(f"an assignment to {ast.unparse(target)}")
                attempt(operator.setitem, holder, key, value)
            case _:
                raise Unreadable(f"{ast.unparse(target)} is assigned to, in place")

    def unpack(self, target: ast.Tuple | ast.List, value: object, names: Names) -> None:
        starred = [n for n, part in enumerate(target.elts) if isinstance(part, ast.Starred)]
        if isinstance(value, tuple | list) and len(starred) == 1:
            at, after = starred[0], len(target.elts) - starred[0] - 1
            if len(value) >= at + after:
                rest = len(value) - after
                value = [*value[:at], list(value[at:rest]), *value[rest:]]
        if not isinstance(value, tuple | list) or len(value) != len(target.elts):
            raise Unreadable(f"{ast.unparse(target)} is unpacked from what is not known")
        for part, item in zip(target.elts, value, strict=True):
            self.assign(part.value if isinstance(part, ast.Starred) else part, item, names)

    def augment(self, node: ast.AugAssign, names: Names) -> None:
        if not isinstance(node.target, ast.Name):
            if not self.constructing:
                raise Unreadable(f"{ast.unparse(node.target)} is changed in place")
            old = self.value(node.target, names)
            value = self.arithmetic(type(node.op), old, self.value(node.value, names))
            return self.assign(node.target, value, names)
        name = node.target.id
        old = self.name(name, names)
        other = self.value(node.value, names)
        if isinstance(old, list | tuple) and isinstance(other, list | tuple):
            names[name] = type(old)([*old, *other])
            return None
        if isinstance(old, Tensor | Parameter):
            self.refuse_inputs([self.tensor(old)])
            self.refuse_views(name, old, names)
        new = self.arithmetic(type(node.op), old, other)
        for each, value in list(names.items()):  # `x += 1` changes the tensor behind every name
            if each == name or (isinstance(old, Tensor) and value is old):
                names[each] = new
        return None

    def refuse_views(self, name: str, changed: object, names: Names) -> None:
        """Raise where another name may hold a view, or a copy, of what changes in place."""
        if not isinstance(changed, Tensor):
            raise Unreadable(f"a parameter is changed in place ({name})")
        for other, value in names.items():
            for held in tensors_in(value):
                if held is changed and value is held:
                    continue  # another name of the same tensor
                if self.base_of(held) == self.base_of(changed):
                    raise Unreadable(
                        f"{name} is changed in place while {other} may share its memory"
                    )

    def base_of(self, tensor: Tensor) -> int:
        node = self.graph[tensor.node]
        return node.args[0] if node.op == "view" else tensor.node

    def is_own_list(self, func: ast.expr, names: Names) -> bool:
        """Whether a call adds to a list that the function itself has made."""
        return (
            isinstance(func, ast.Attribute)
            and func.attr in ("append", "extend", "insert")
            and isinstance(func.value, ast.Name)
            and isinstance(names.get(func.value.id), list)
        )

    def bare(self, node: ast.expr, names: Names) -> None:
        """An expression statement: those of a constructor; in a forward only harmless ones."""
        if isinstance(node, ast.Constant):
            return
        if not isinstance(node, ast.Call):
            raise Unreadable(f"`{ast.unparse(node)}` is there for what it does")
        text = ast.unparse(node.func)
        if text.startswith(HARMLESS):
            return
        if self.is_own_list(node.func, names) and not node.keywords:
            owner, name = self.value(node.func.value, names), node.func.attr  # type: ignore[attr-defined]
            getattr(owner, name)(*self.items(node.args, names))
            return
        if not (self.constructing and isinstance(node.func, ast.Attribute)):
            raise Unreadable(f"{text}() is called for what it does, not for what it gives")
        self.change(node, node.func, names)


def is_harmless(decorator: str) -> bool:
    """Whether a decorator leaves what a function returns as it is."""
    last = decorator.split("(")[0].rpartition(".")[2]
    return last in QUIET or decorator.startswith(("torch.jit", "torch.compile", "functools")) or (
        last in ("staticmethod", "classmethod", "property", "override", "final", "abstractmethod",
                 "overload", "cache", "lru_cache", "cached_property", "typechecked")
    )  # fmt: skip
