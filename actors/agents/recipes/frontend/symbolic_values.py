"""The values of a name while a task's source is read, besides numbers and tensors."""

from __future__ import annotations

import ast

import msgspec

from actors.agents.recipes.ir.graph import Shape
from protocol.values import GiveUpScope

# Python raises these for arguments that do not fit a function: no rule covers such a call.
ARGUMENT_ERRORS = (TypeError, ValueError, IndexError, KeyError, ZeroDivisionError, OverflowError)


class UnsupportedSourceError(Exception):
    """The whole forward can't be followed; the message is a sentence for the user."""


class EndlessLoopError(UnsupportedSourceError):
    """Reading would not end.  Unlike other statements, this one is never skipped."""


class ExhaustedError(Exception):
    """Everything was tried: at this node, or anywhere in the task."""

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
    """A tensor that a constructor makes: its shape and dtype, no numbers."""

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
    """A value that is not understood, reached by Python text; "": it can't be reached."""

    text: str = ""


class TorchLayer(msgspec.Struct, frozen=True, kw_only=True):
    """A layer of torch.nn: its function, the function's arguments, and its parameters."""

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
    """A function of the task's file; with an owner, a method."""

    body: ast.FunctionDef
    owner: ModuleValue | None = None
    home: ast.ClassDef | None = None  # the class that defines it, for super()
    closure: dict[str, object] = {}  # the outer function's names, for a nested function


class SuperValue(msgspec.Struct, frozen=True, kw_only=True):
    """`super()` in a method of `home`."""

    owner: ModuleValue
    home: ast.ClassDef


class DataclassValue(msgspec.Struct, kw_only=True):
    """An object of one of the task's dataclasses: its fields by name."""

    kind: str
    fields: dict[str, object]


class BoundMethod(msgspec.Struct, frozen=True, kw_only=True):
    """A method, not yet called, of a tensor, a module or a plain value."""

    owner: object
    name: str
