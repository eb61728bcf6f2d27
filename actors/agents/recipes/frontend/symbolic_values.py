"""What a name can stand for while a task's source is read, besides numbers and tensors."""

from __future__ import annotations

import ast

import msgspec

from actors.agents.recipes.ir.graph import Shape
from protocol.values import GiveUpScope

# What Python raises for arguments that do not fit a function; then the function is not known.
ARGUMENT_ERRORS = (TypeError, ValueError, IndexError, KeyError, ZeroDivisionError, OverflowError)


class UnsupportedSourceError(Exception):
    """The whole forward can't be followed; the message says why, in words for a person."""


class EndlessLoopError(UnsupportedSourceError):
    """Reading would not come to an end: no part of the source is left out for it."""


class ExhaustedError(Exception):
    """Nothing is left that was not tried: on this node, or anywhere in the task."""

    def __init__(self, scope: GiveUpScope) -> None:
        super().__init__(scope)
        self.scope = scope


class Symbol(msgspec.Struct, frozen=True, kw_only=True):
    """A dotted name from an import or a builtin: "torch.nn.functional.gelu"."""

    name: str
    text: str = ""  # as the task's file spells it: "F.gelu"; "" where it has no name there

    @property
    def spelling(self) -> str:
        """Python text for a candidate, which imports torch and math under their own names."""
        if self.name.split(".")[0] in ("torch", "math"):
            return self.name
        return self.text or ("" if "." in self.name else self.name)


class MetaTensor(msgspec.Struct, frozen=True, kw_only=True):
    """A tensor made while constructing: its shape and type, no numbers."""

    shape: Shape
    dtype: str = "float32"
    line: int = 0  # of the task's file


class ParameterValue(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter, buffer or tensor attribute, reached by Python text such as "self.bias"."""

    text: str
    shape: Shape | None
    dtype: str = "float32"
    line: int = 0  # of the task's file, where it is made


class OpaqueValue(msgspec.Struct, frozen=True, kw_only=True):
    """Something that we do not understand, reached by Python text; "" when it can't be reached."""

    text: str = ""


class TorchLayer(msgspec.Struct, frozen=True, kw_only=True):
    """What a torch.nn class does: a function, its arguments, and the parameters it holds."""

    function: str
    kwargs: dict[str, object] = {}
    parameters: dict[str, Shape] = {}  # passed to the function under these names
    inplace: bool = False
    dtype: str = "float32"  # of the parameters


class ModuleValue(msgspec.Struct, kw_only=True):
    """A module of the model: one of torch's, or of the task's own classes."""

    text: str  # how ModelNew reaches it: "self.layers[0]"
    kind: str  # the class's name
    layer: TorchLayer | None = None
    body: ast.ClassDef | None = None
    attributes: dict[str, object] = {}
    children: list[object] | None = None  # of a Sequential or ModuleList
    evaluating: bool = False  # .eval() was called on it in the source
    line: int = 0  # of the task's file, where it is made


class TaskFunction(msgspec.Struct, frozen=True, kw_only=True):
    """A function of the task's own; with an owner, a method."""

    body: ast.FunctionDef
    owner: ModuleValue | None = None
    home: ast.ClassDef | None = None  # the class that it stands in, for super()
    closure: dict[str, object] = {}  # the names around a function inside of a function


class SuperValue(msgspec.Struct, frozen=True, kw_only=True):
    """`super()` in a method of `home`."""

    owner: ModuleValue
    home: ast.ClassDef


class DataclassValue(msgspec.Struct, kw_only=True):
    """An object of a dataclass of the task's own: its fields, and the text that makes it again."""

    kind: str
    fields: dict[str, object]


class BoundMethod(msgspec.Struct, frozen=True, kw_only=True):
    """A method, not yet called, of a tensor or of an object that we do not understand."""

    owner: object
    name: str
