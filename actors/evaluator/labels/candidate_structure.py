"""The structure of a candidate's file: its custom kernels, and whether `forward` calls them.

The analysis reads the source only (nothing is run) and goes by names only: two objects of one name
count as one.  So every answer is a guess that errs towards "it is called".  `labels.py` derives the
labels from it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from functools import cached_property

from actors.evaluator.labels.syntax import (
    DeadCodeRemover,
    bindings,
    calls_in,
    identifiers,
    is_library_name,
    last_name,
)

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Definition = FunctionNode | ast.ClassDef

# The calls that return a kernel, by the last part of their names.
KERNEL_PRODUCERS = frozenset(
    [
        *("load_inline", "CDLL", "cdll", "LoadLibrary", "load_library"),
        *("RawKernel", "RawModule", "ElementwiseKernel", "ReductionKernel", "SourceModule"),
        *("_compile_kernel", "_create_jit_fn", "_create_multi_output_jit_fn"),
    ]
)
JIT_DECORATORS = frozenset(["jit", "njit", "kernel", "vectorize", "guvectorize"])
DYNAMIC_CODE = frozenset(
    ["exec", "eval", "__import__", "import_module", "module_from_spec", "globals"]
)
INSPECTION_CALLS = frozenset(
    ["hasattr", "print", "isinstance", "id", "str", "repr", "type", "bool", "len"]
)
CONTAINERS = frozenset(["get", "pop", "setdefault", "getattr"])
TORCH_OPS = frozenset(["aten", "prims", "prim", "higher_order", "profiler", "inductor"])
NATIVE_CODE = re.compile(r"#include|\btorch::|\bat::|__global__|extern\s+\"C\"|\bfloat\s*\*")
# Linear in a hostile text, too: the pattern must not backtrack.
COMMENT = re.compile(r"//[^\n]*|/\*(?:[^*]|\*(?!/))*+(?:\*/)?")
GLOBAL_FUNCTION = re.compile(r"__global__[^;{(]{0,200}?\b(\w{1,100})\s{0,20}\(")
# Stands between `__global__` and the name: __launch_bounds__(256), __cluster_dims__(2, 1, 1).
KERNEL_ATTRIBUTE = re.compile(r"__[a-z_]{1,30}__\s{0,20}\([^)]{0,200}\)")
MAX_ROUNDS = 20  # a kernel that passes through more names than this is hidden on purpose


class CandidateStructure:
    """One parsed file; raises `SyntaxError` (or `ValueError`) where it is not Python."""

    def __init__(self, source: str, class_name: str = "ModelNew") -> None:
        self.tree: ast.Module = DeadCodeRemover().visit(ast.parse(source))
        self._class_name = class_name
        self.definitions: dict[str, list[Definition]] = {}
        self.values: dict[str, list[ast.expr]] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self.definitions.setdefault(node.name, []).append(node)
            for name, value in bindings(node):
                self.values.setdefault(name, []).append(value)
                if isinstance(value, ast.Lambda):
                    self.definitions.setdefault(name, []).append(value)

    # --- kernels -----------------------------------------------------------------------------

    @cached_property
    def native_texts(self) -> tuple[str, ...]:
        """The string constants with code in another language, without comments."""
        docstrings = {
            id(node.value): None
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        texts = [
            COMMENT.sub(" ", node.value)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in docstrings
        ]
        return tuple(text for text in texts if ";" in text and NATIVE_CODE.search(text))

    @cached_property
    def kernel_names(self) -> frozenset[str]:
        """The names of device functions that the file itself defines."""
        own = {
            name
            for text in self.native_texts
            for name in GLOBAL_FUNCTION.findall(KERNEL_ATTRIBUTE.sub(" ", text))
        }
        return frozenset(own | self._jitted)

    @cached_property
    def _jitted(self) -> set[str]:
        return {
            node.name
            for node in ast.walk(self.tree)
            if isinstance(node, ast.FunctionDef)
            and any(last_name(mark) in JIT_DECORATORS for mark in node.decorator_list)
        }

    @cached_property
    def _loads(self) -> set[str]:
        """The names under which the file imports torch's functions that build extensions."""
        return {"load_inline"} | {
            name.asname or name.name
            for node in ast.walk(self.tree)
            if isinstance(node, ast.ImportFrom) and "cpp_extension" in (node.module or "")
            for name in node.names
            if name.name in ("load", "load_inline")
        }

    def produces_kernel(self, call: ast.Call) -> bool:
        """Whether a call returns a kernel, or a library of kernels."""
        name = last_name(call.func)
        if name in KERNEL_PRODUCERS or (isinstance(call.func, ast.Name) and name in self._loads):
            return True
        if name == "load" and isinstance(call.func, ast.Attribute):
            named = {word.arg for word in call.keywords} >= {"name", "sources"}
            return named or "cpp_extension" in ast.unparse(call.func)
        return False

    @cached_property
    def has_kernel(self) -> bool:
        """Whether the file defines or loads a kernel."""
        return bool(self._jitted) or any(
            self.produces_kernel(node) if isinstance(node, ast.Call) else is_custom_operator(node)
            for node in ast.walk(self.tree)
        )

    @cached_property
    def runs_dynamic_code(self) -> bool:
        """Whether the file runs code that it makes or finds, which the source does not show."""
        return any(last_name(call.func) in DYNAMIC_CODE for call in calls_in(self.tree))

    # --- handles: names that hold kernels ------------------------------------------------------

    @cached_property
    def handles(self) -> frozenset[str]:
        """The variables, attributes and functions that hold or return a kernel."""
        found = set(self._jitted)
        for _round in range(MAX_ROUNDS):
            more = {
                name
                for name, values in self.values.items()
                if any(self.holds_kernel(value, found) for value in values)
            }
            more |= {
                name
                for name, bodies in self.definitions.items()
                for body in bodies
                if not isinstance(body, ast.ClassDef) and self._returns_kernel(body, found)
            }
            if more <= found:
                break
            found |= more
        return frozenset(found)

    def _returns_kernel(self, function: FunctionNode, handles: set[str]) -> bool:
        if isinstance(function, ast.Lambda):
            return self.holds_kernel(function.body, handles)
        returned = [node.value for node in ast.walk(function) if isinstance(node, ast.Return)]
        return any(value is not None and self.holds_kernel(value, handles) for value in returned)

    def holds_kernel(self, value: ast.AST, handles: Iterable[str]) -> bool:
        """Whether an expression's value is a kernel or contains one."""
        match value:
            case ast.Call(func=function, args=arguments):
                name = last_name(function)
                if self.produces_kernel(value):
                    return True
                if name in handles and name in self.definitions and name not in self._jitted:
                    return True  # a function of the file that returns a kernel
                if isinstance(function, ast.Attribute) and name in CONTAINERS:
                    arguments = [function.value, *arguments]
                # A kernel returns a tensor; an object that is made from a kernel may be one.
                return any(self.holds_kernel(argument, handles) for argument in arguments)
            case ast.Name():
                return value.id in handles
            case ast.Attribute():
                if is_library_name(value):
                    return is_custom_operator(value)
                return value.attr in handles or self.holds_kernel(value.value, handles)
            case ast.Compare():
                return False
            case _:
                return any(self.holds_kernel(part, handles) for part in ast.iter_child_nodes(value))

    def calls_kernel(self, call: ast.Call) -> bool:
        """Whether a call runs a kernel, or passes one to a function that may run it."""
        if last_name(call.func) in INSPECTION_CALLS:
            return False
        if self.produces_kernel(call):
            return False
        parts = (call.func, *call.args, *(word.value for word in call.keywords))
        return any(self.holds_kernel(part, self.handles) for part in parts)

    # --- the code that forward reaches ---------------------------------------------------------

    @cached_property
    def forward(self) -> ast.FunctionDef | None:
        """The `forward` that the class itself defines, if any."""
        for found in self.definitions.get(self._class_name, []):
            if isinstance(found, ast.ClassDef):
                for part in found.body:
                    if isinstance(part, ast.FunctionDef) and part.name == "forward":
                        return part
        return None

    @cached_property
    def forward_path(self) -> tuple[ast.AST, ...]:
        """The functions and classes that `forward` may reach; the whole file, if unknown."""
        if self.forward is None:
            return (self.tree,)
        found: dict[int, ast.AST] = {id(self.forward): self.forward}
        todo = identifiers(self.forward, own=True) | {
            name
            for value in self.values.get("forward", [])
            for name in identifiers(value, own=True)
        }
        seen: set[str] = {self._class_name, "__init__"}
        while todo:
            name = todo.pop()
            if name in seen:
                continue
            seen.add(name)
            for definition in self.definitions.get(name, []):
                found[id(definition)] = definition
                todo |= identifiers(definition, own=True)
            for value in self.values.get(name, []):
                todo |= identifiers(value, own=True)
        return tuple(found.values())


def is_custom_operator(node: ast.AST) -> bool:
    """Whether `node` is `torch.ops.NAMESPACE.NAME` with a namespace that is not torch's own."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.insert(0, node.attr)
        node = node.value
    return (
        isinstance(node, ast.Name)
        and [node.id, *parts[:1]] == ["torch", "ops"]
        and len(parts) > 2
        and parts[1] not in TORCH_OPS
    )
