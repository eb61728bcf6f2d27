"""What a name can stand for while a task's source is read, besides numbers and tensors."""

from __future__ import annotations

import ast

import msgspec

from actors.agents.recipes.graph import Shape

# What Python raises for arguments that do not fit a function; then the function is not known.
MISFITS = (TypeError, ValueError, IndexError, KeyError, ZeroDivisionError, OverflowError)


class Unreadable(Exception):
    """The whole forward can't be followed; the message says why, in words for a person."""


class Symbol(msgspec.Struct, frozen=True, kw_only=True):
    """A dotted name from an import or a builtin: "torch.nn.functional.gelu"."""

    name: str


class Meta(msgspec.Struct, frozen=True, kw_only=True):
    """A tensor made while constructing: its shape and type, no numbers."""

    shape: Shape
    dtype: str = "float32"


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter, buffer or tensor attribute, reached by Python text such as "self.bias"."""

    text: str
    shape: Shape | None


class Hidden(msgspec.Struct, frozen=True, kw_only=True):
    """Something that we do not understand, reached by Python text; "" when it can't be reached."""

    text: str = ""


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """What a torch.nn class does: a function, its arguments, and the parameters it holds."""

    function: str
    kwargs: dict[str, object] = {}
    parameters: dict[str, Shape] = {}  # passed to the function under these names
    inplace: bool = False


class Module(msgspec.Struct, kw_only=True):
    """A module of the model: one of torch's, or of the task's own classes."""

    text: str  # how ModelNew reaches it: "self.layers[0]"
    kind: str  # the class's name
    layer: Layer | None = None
    body: ast.ClassDef | None = None
    attributes: dict[str, object] = {}
    children: list[object] | None = None  # of a Sequential or ModuleList
    evaluating: bool = False  # .eval() was called on it in the source


class Function(msgspec.Struct, frozen=True, kw_only=True):
    """A function of the task's own; with an owner, a method."""

    body: ast.FunctionDef
    owner: Module | None = None


class Method(msgspec.Struct, frozen=True, kw_only=True):
    """A method, not yet called, of a tensor or of an object that we do not understand."""

    owner: object
    name: str
