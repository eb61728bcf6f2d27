"""Attributes in a task's source: of tensors, modules, classes, dataclasses and imported names."""

from __future__ import annotations

import ast
import math

import msgspec

from actors.agents.recipes.frontend.calls import CallReader
from actors.agents.recipes.frontend.symbolic_values import (
    BoundMethod,
    DataclassValue,
    MetaTensor,
    ModuleValue,
    OpaqueValue,
    ParameterValue,
    SuperValue,
    Symbol,
    TaskFunction,
)
from actors.agents.recipes.frontend.task_source import method
from actors.agents.recipes.ir.graph import UnsupportedOperationError
from actors.agents.recipes.ir.tensor_views import TensorView, visible_shape

Namespace = dict[str, object]


class AttributeReader(CallReader):
    """The part of the reader that evaluates `owner.name`."""

    def evaluate(self, node: ast.expr, names: Namespace) -> object:
        raise NotImplementedError

    def attribute(  # noqa: C901 - one case for each kind of owner
        self, owner: object, name: str
    ) -> object:
        """The value of `owner.name`."""
        match owner:
            case Symbol():
                return resolve_symbol(f"{owner.name}.{name}", owner.text and f"{owner.text}.{name}")
            case SuperValue():
                return self.inherited_attribute(owner, name)
            case DataclassValue() if name in owner.fields:
                return owner.fields[name]
            case ast.ClassDef():
                return self.class_attribute(owner, name)
            case dict() if name in ("keys", "values", "items", "get"):
                return BoundMethod(owner=owner, name=name)
            case str():
                return BoundMethod(owner=owner, name=name)
            case ModuleValue():
                return self.module_attribute(owner, name)
            case TensorView() | ParameterValue():
                tensor = self.as_tensor(owner)
                return self.tensor_attribute(tensor, name)
            case MetaTensor():
                if name in ("data", "T"):
                    shape = owner.shape[::-1] if name == "T" else owner.shape
                    return msgspec.structs.replace(owner, shape=shape)
                return owner.shape if name == "shape" else BoundMethod(owner=owner, name=name)
            case tuple() if name == "values" and len(owner) == 2:
                return owner[0]
            case OpaqueValue(text=text) if text:
                return OpaqueValue(text=f"{text}.{name}")
        raise UnsupportedOperationError(f"the attribute {name}")

    def tensor_attribute(self, tensor: TensorView, name: str) -> object:
        """A tensor's attribute: its shape as numbers if known, else left to PyTorch."""
        if self.graph[tensor.node].shape is not None:
            if name == "shape":
                return visible_shape(self.graph, tensor)
            if name == "ndim":
                return len(visible_shape(self.graph, tensor))
            if name == "dtype" and not self.graph[tensor.node].is_mask:
                return Symbol(name="torch.float32")
            if name == "is_sparse":
                return False
        if name == "data":
            return tensor
        if name in ("shape", "ndim", "T", "mT", "device", "dtype", "is_cuda", "requires_grad"):
            nodes: list[int] = []
            value = self.torch_node(f"{self.argument_text(tensor, nodes)}.{name}", nodes)
            return self.with_inferred_shape(value, "t", [tensor], {}) if name == "T" else value
        return BoundMethod(owner=tensor, name=name)

    def module_attribute(self, module: ModuleValue, name: str) -> object:
        """A module's attribute: set by its constructor, defined by its class, or a parameter."""
        if name in module.attributes:
            return module.attributes[name]
        if module.body is not None:
            found = self.class_attribute_of(module.body, name, module)
            if found is not None:
                return found[0]
        if module.layer is not None and name in module.layer.parameters:
            return ParameterValue(text=f"{module.text}.{name}", shape=module.layer.parameters[name])
        if name in ("eval", "train", "apply", "to", "requires_grad_", "float"):
            return BoundMethod(owner=module, name=name)
        if name == "training" and module.evaluating:
            return False
        return OpaqueValue(text=f"{module.text}.{name}" if module.text else "")

    def class_attribute_of(
        self, body: ast.ClassDef, name: str, owner: ModuleValue | None
    ) -> tuple[object] | None:
        """A class's own attribute, wrapped in a tuple, or None; for a property, its value."""
        found = self.source.method(body, name)
        if found is not None:
            function = TaskFunction(body=found[0], owner=owner, home=found[1])
            marks = [ast.unparse(d).rpartition(".")[2] for d in found[0].decorator_list]
            if owner is not None and {"property", "cached_property"} & set(marks):
                return (self.inline(function, [], {}),)
            return (function,)
        for each in self.source.mro(body):
            for node in each.body:
                if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
                    return (self.evaluate(node.value, {}),)
                if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == name:
                    return None if node.value is None else (self.evaluate(node.value, {}),)
        return None

    def class_attribute(self, body: ast.ClassDef, name: str) -> object:
        """An attribute of one of the task's classes: static method, constant, or opaque."""
        if any("Enum" in ast.unparse(base) for base in body.bases):
            return Symbol(name=f"{body.name}.{name}", text=f"{body.name}.{name}")
        found = method(body, name)
        if found is not None and any(
            ast.unparse(d) == "staticmethod" for d in found.decorator_list
        ):
            return TaskFunction(body=found)
        if found is None and all("Module" in ast.unparse(base) for base in body.bases):
            inner = self.class_attribute_of(body, name, None)
            if inner is not None:
                return inner[0]
        return OpaqueValue(text=f"{body.name}.{name}")

    def inherited_attribute(self, parent: SuperValue, name: str) -> object:
        """`super().name`."""
        body = parent.owner.body
        found = None if body is None else self.source.method(body, name, parent.home)
        if found is None:
            raise UnsupportedOperationError(f"super().{name}")
        return TaskFunction(body=found[0], owner=parent.owner, home=found[1])

    def dataclass_value(
        self, body: ast.ClassDef, args: list[object], kwargs: dict[str, object]
    ) -> DataclassValue:
        """An object of a dataclass: its fields from the arguments, else from the defaults."""
        fields: dict[str, object] = {}
        places = list(args)
        if "slots" in ast.unparse(body.decorator_list[0]):
            raise UnsupportedOperationError(f"the dataclass {body.name}, which has slots")
        if self.source.method(body, "__post_init__") or self.source.method(body, "__init__"):
            raise UnsupportedOperationError(
                f"the dataclass {body.name}, which has a constructor of its own"
            )
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
                    fields[name] = self.evaluate(node.value, {})
                else:
                    raise UnsupportedOperationError(f"{body.name}() without {name}")
        return DataclassValue(kind=body.name, fields=fields)


def resolve_symbol(name: str, text: str = "") -> object:
    """The symbol of a dotted name; for math.pi and its kin, the number."""
    numbers = {"pi": math.pi, "inf": math.inf, "e": math.e, "tau": math.tau, "nan": math.nan}
    head, _, last = name.rpartition(".")
    return (
        numbers[last]
        if head in ("math", "torch") and last in numbers
        else Symbol(name=name, text=text)
    )
