"""Attributes in a task's source: of tensors, modules, classes, dataclasses and imported names."""

from __future__ import annotations

import ast
import math

import msgspec

from actors.agents.recipes.calls import Calling
from actors.agents.recipes.frames import Tensor, seen
from actors.agents.recipes.graph import Unknown
from actors.agents.recipes.objects import (
    Function,
    Hidden,
    Meta,
    Method,
    Module,
    Parameter,
    Parent,
    Record,
    Symbol,
)
from actors.agents.recipes.source import method

Names = dict[str, object]


class Members(Calling):
    """The part of the reader that knows what objects have."""

    def value(self, node: ast.expr, names: Names) -> object:
        raise NotImplementedError

    def attribute(  # noqa: C901 - one case for each kind of owner
        self, owner: object, name: str
    ) -> object:
        match owner:
            case Symbol():
                return symbol(f"{owner.name}.{name}", owner.text and f"{owner.text}.{name}")
            case Parent():
                return self.inherited(owner, name)
            case Record() if name in owner.fields:
                return owner.fields[name]
            case ast.ClassDef():
                return self.of_class(owner, name)
            case dict() if name in ("keys", "values", "items", "get"):
                return Method(owner=owner, name=name)
            case str():
                return Method(owner=owner, name=name)
            case Module():
                return self.member(owner, name)
            case Tensor() | Parameter():
                tensor = self.tensor(owner)
                return self.of_tensor(tensor, name)
            case Meta():
                if name in ("data", "T"):
                    shape = owner.shape[::-1] if name == "T" else owner.shape
                    return msgspec.structs.replace(owner, shape=shape)
                return owner.shape if name == "shape" else Method(owner=owner, name=name)
            case tuple() if name == "values" and len(owner) == 2:
                return owner[0]
            case Hidden(text=text) if text:
                return Hidden(text=f"{text}.{name}")
        raise Unknown(f"the attribute {name}")

    def of_tensor(self, tensor: Tensor, name: str) -> object:
        if self.graph[tensor.node].shape is not None:
            if name == "shape":
                return seen(self.graph, tensor)
            if name == "ndim":
                return len(seen(self.graph, tensor))
            if name == "dtype" and not self.graph[tensor.node].mask:
                return Symbol(name="torch.float32")
            if name == "is_sparse":
                return False
        if name == "data":
            return tensor
        if name in ("shape", "ndim", "T", "mT", "device", "dtype", "is_cuda", "requires_grad"):
            nodes: list[int] = []
            value = self.kept_node(f"{self.rendered(tensor, nodes)}.{name}", nodes)
            return self.reshaped(value, "t", [tensor], {}) if name == "T" else value
        return Method(owner=tensor, name=name)

    def member(self, module: Module, name: str) -> object:
        if name in module.attributes:
            return module.attributes[name]
        if module.body is not None:
            found = self.of_body(module.body, name, module)
            if found is not None:
                return found[0]
        if module.layer is not None and name in module.layer.parameters:
            return Parameter(text=f"{module.text}.{name}", shape=module.layer.parameters[name])
        if name in ("eval", "train", "apply", "to", "requires_grad_", "float"):
            return Method(owner=module, name=name)
        if name == "training" and module.evaluating:
            return False
        return Hidden(text=f"{module.text}.{name}" if module.text else "")

    def of_body(self, body: ast.ClassDef, name: str, owner: Module | None) -> tuple[object] | None:
        """What a class itself has under a name, wrapped; of a property, its value."""
        found = self.source.method(body, name)
        if found is not None:
            function = Function(body=found[0], owner=owner, home=found[1])
            marks = [ast.unparse(d).rpartition(".")[2] for d in found[0].decorator_list]
            if owner is not None and {"property", "cached_property"} & set(marks):
                return (self.inline(function, [], {}),)
            return (function,)
        for each in self.source.mro(body):
            for node in each.body:
                if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
                    return (self.value(node.value, {}),)
                if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == name:
                    return None if node.value is None else (self.value(node.value, {}),)
        return None

    def of_class(self, body: ast.ClassDef, name: str) -> object:
        """An attribute of one of the task's classes: static, a constant, or PyTorch's to do."""
        if any("Enum" in ast.unparse(base) for base in body.bases):
            return Symbol(name=f"{body.name}.{name}", text=f"{body.name}.{name}")
        found = method(body, name)
        if found is not None and any(
            ast.unparse(d) == "staticmethod" for d in found.decorator_list
        ):
            return Function(body=found)
        if found is None and all("Module" in ast.unparse(base) for base in body.bases):
            inner = self.of_body(body, name, None)
            if inner is not None:
                return inner[0]
        return Hidden(text=f"{body.name}.{name}")

    def inherited(self, parent: Parent, name: str) -> object:
        body = parent.owner.body
        found = None if body is None else self.source.method(body, name, parent.home)
        if found is None:
            raise Unknown(f"super().{name}")
        return Function(body=found[0], owner=parent.owner, home=found[1])

    def record(self, body: ast.ClassDef, args: list[object], kwargs: dict[str, object]) -> Record:
        """An object of a dataclass: what it is given, and its defaults."""
        fields: dict[str, object] = {}
        places = list(args)
        if "slots" in ast.unparse(body.decorator_list[0]):
            raise Unknown(f"the dataclass {body.name}, which has slots")
        if self.source.method(body, "__post_init__") or self.source.method(body, "__init__"):
            raise Unknown(f"the dataclass {body.name}, which has a constructor of its own")
        for each in reversed(self.source.mro(body)):
            for node in each.body:
                if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
                    continue
                name = node.target.id
                if places:
                    fields[name] = places.pop(0)
                elif name in kwargs:
                    fields[name] = kwargs[name]
                elif node.value is not None:
                    fields[name] = self.value(node.value, {})
                else:
                    raise Unknown(f"{body.name}() without {name}")
        return Record(kind=body.name, fields=fields)


def symbol(name: str, text: str = "") -> object:
    """A dotted name, or the number that it stands for."""
    numbers = {"pi": math.pi, "inf": math.inf, "e": math.e, "tau": math.tau, "nan": math.nan}
    head, _, last = name.rpartition(".")
    return (
        numbers[last]
        if head in ("math", "torch") and last in numbers
        else Symbol(name=name, text=text)
    )
