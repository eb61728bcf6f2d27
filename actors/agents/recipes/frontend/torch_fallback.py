"""Operations that stay in PyTorch: nodes "torch", whose text has a placeholder for each tensor.

Example: `torch.matmul(x, y)` becomes the text "torch.matmul({0}, {1})" with the nodes of x and y.
"""

from __future__ import annotations

import math

from actors.agents.recipes.frontend.symbolic_values import (
    ARGUMENT_ERRORS,
    ModuleValue,
    OpaqueValue,
    ParameterValue,
    Symbol,
    UnsupportedSourceError,
)
from actors.agents.recipes.ir.graph import OperationGraph, UnsupportedOperationError
from actors.agents.recipes.ir.shape_inference import MATRIX_PRODUCTS, SHAPE_RULES
from actors.agents.recipes.ir.tensor_views import (
    TensorView,
    identity_view,
    is_identity_view,
    materialized,
    visible_shape,
)

TORCH_MASK_FUNCTIONS = {"gt": "gt", "lt": "lt", "ge": "ge", "le": "le", "eq": "eq", "ne": "ne",
            "and": "logical_and", "or": "logical_or", "not": "logical_not"}  # fmt: skip


class TorchFallback:
    """The part of the reader that leaves operations to PyTorch."""

    def __init__(self, graph: OperationGraph) -> None:
        self.graph = graph
        self.half = ""  # the dtype of a module in a half, which is read as if that were float32
        self.left_to_torch: list[str] = []  # the operations that stay in PyTorch, for the user
        self.torch_lines: dict[str, int] = {}  # the first line with each of them
        self.unsupported_tensors: dict[str, str] = {}  # tensors that no kernel can take, and why
        self.line = 0

    def with_inferred_shape(
        self, value: TensorView, bare: str, args: list[object], kwargs: dict[str, object]
    ) -> TensorView:
        """The PyTorch expression `value` with its shape, if `SHAPE_RULES` has a rule for `bare`."""
        rule = SHAPE_RULES.get(bare)
        if rule is None:
            return value
        if bare == "scaled_dot_product_attention":  # a mask's shape may be unknown
            args, kwargs = args[:3], {}
        try:
            shape = rule(*map(self.shape_of, args), **{
                k: self.shape_of(v) for k, v in kwargs.items() if k != "training"
            })  # fmt: skip
        except (UnsupportedOperationError, *ARGUMENT_ERRORS):
            return value
        if not isinstance(shape, tuple) or not all(type(n) is int and n > 0 for n in shape):
            return value
        node = self.graph[value.node]
        fresh = bare in MATRIX_PRODUCTS
        return identity_view(
            self.graph, self.graph.torch_node(node.text, node.args, shape, fresh=fresh)
        )

    def shape_of(self, value: object) -> object:
        """The argument of a shape rule: tensors become their shapes."""
        if isinstance(value, TensorView):
            if self.graph[value.node].is_mask:
                raise UnsupportedOperationError("the type of what PyTorch makes of booleans")
            return visible_shape(self.graph, value)
        if isinstance(value, ParameterValue) and value.shape is not None:
            return value.shape
        if isinstance(value, tuple | list):
            return tuple(self.shape_of(item) for item in value)
        return value

    def torch_value(self, text: str, args: list[object], kwargs: dict[str, object]) -> TensorView:
        """An expression that PyTorch evaluates: `text(args)`, or a method for ".text"."""
        if not text:
            raise UnsupportedSourceError("a module is made while the forward runs")
        nodes: list[int] = []
        parts = [self.argument_text(arg, nodes) for arg in args]
        parts += [f"{name}={self.argument_text(value, nodes)}" for name, value in kwargs.items()]
        if text.startswith("."):
            whole_text = f"{parts[0]}{text}({', '.join(parts[1:])})"
        else:
            called = text.replace("{", "{{").replace("}", "}}")
            whole_text = f"{called}({', '.join(parts)})"
        self.left_to_torch.append(text.removeprefix("torch.nn.functional."))
        return self.torch_node(whole_text, nodes)

    def extremum_indices(
        self, text: str, args: list[object], kwargs: dict[str, object]
    ) -> TensorView:
        """The indices of `max(dim)` or `min(dim)`, which PyTorch finds if the forward uses them."""
        known = len(self.left_to_torch)
        found = self.torch_value(text, args, kwargs)
        del self.left_to_torch[known:]  # most forwards use the values alone
        node = self.graph[found.node]
        return self.torch_node(f"{node.text.rstrip()}[1]", list(node.args))

    def torch_node(self, text: str, nodes: list[int]) -> TensorView:
        """A node "torch" of unknown shape for this text."""
        # Two equal texts may be two draws of a dropout: each becomes a node of its own.
        if self.left_to_torch:
            self.torch_lines.setdefault(self.left_to_torch[-1], self.line)
        unique = text + " " * (len(self.left_to_torch) % 997)
        return TensorView(node=self.graph.torch_node(unique, tuple(nodes), None), groups=())

    def argument_text(  # noqa: C901 - one case for each kind of value
        self, value: object, nodes: list[int]
    ) -> str:
        """Python text for an argument, with a placeholder for each tensor."""
        match value:
            case TensorView():
                if self.graph[value.node].op == "const":
                    return repr(self.graph[value.node].value)
                node = value.node
                if self.graph[node].shape is not None and not is_identity_view(self.graph, value):
                    node = materialized(self.graph, value)
                if self.graph[node].is_mask:
                    return self.mask_text(node, nodes)
                nodes.append(node)
                return f"{{{len(nodes) - 1}}}"
            case bool() | int() | str() | None:
                return repr(value).replace("{", "{{").replace("}", "}}")
            case float():
                return repr(value) if math.isfinite(value) else f"float('{value}')"
            case slice():
                parts = (value.start, value.stop, value.step)
                return f"slice({', '.join(self.argument_text(part, nodes) for part in parts)})"
            case tuple() | list():
                inner = ", ".join(self.argument_text(item, nodes) for item in value)
                if isinstance(value, list):
                    return f"[{inner}]"
                return f"({inner},)" if len(value) == 1 else f"({inner})"
            case Symbol(spelling=text) | OpaqueValue(text=text) | ModuleValue(text=text) if text:
                return text.replace("{", "{{").replace("}", "}}")
            case dict():
                pairs = (f"{self.argument_text(k, nodes)}: {self.argument_text(v, nodes)}"
                         for k, v in value.items())  # fmt: skip
                return f"{{{{{', '.join(pairs)}}}}}"
            case ParameterValue():
                return self.argument_text(self.as_tensor(value), nodes)
            case _ if value is ...:
                return "..."
        raise UnsupportedSourceError("an argument is not known, and can't be written down again")

    def mask_text(self, index: int, nodes: list[int]) -> str:
        """A comparison as PyTorch text: no kernel writes a mask, so PyTorch computes it again."""
        node = self.graph[index]
        if node.op == "const":
            return repr(node.value)
        if not node.is_mask:
            nodes.append(index)
            return f"{{{len(nodes) - 1}}}"
        texts = [self.mask_text(arg, nodes) for arg in node.args]
        if node.op not in TORCH_MASK_FUNCTIONS or texts[0].startswith(("-", "0", "1", "2")):
            raise UnsupportedSourceError("a comparison's result is needed by what stays in PyTorch")
        return f"torch.{TORCH_MASK_FUNCTIONS[node.op]}({', '.join(texts)})"

    def as_tensor(self, value: object) -> TensorView:
        """A tensor for a parameter or tensor; its shape may be unknown."""
        if isinstance(value, ParameterValue):
            known = ("float32", "float16", "bfloat16") if self.half else ("float32",)
            if value.dtype not in known and value.shape is not None:
                at = f" (line {value.line})" if value.line else ""
                self.unsupported_tensors[value.text] = f"{value.text} is {value.dtype}{at}"
            if value.shape is None or value.dtype not in known:
                text = value.text.replace("{", "{{").replace("}", "}}")
                return TensorView(node=self.graph.torch_node(text, (), None), groups=())
            return identity_view(self.graph, self.graph.leaf(value.text, value.shape))
        if isinstance(value, TensorView):
            return value
        kind = "number" if isinstance(value, int | float) else type(value).__name__.lower()
        raise UnsupportedOperationError(f"a {kind} where a tensor is wanted")
