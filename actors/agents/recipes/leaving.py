"""What stays in PyTorch: expressions written down again, with placeholders for their tensors."""

from __future__ import annotations

import math

from actors.agents.recipes.frames import Tensor, plain, seen, stored, whole
from actors.agents.recipes.graph import Graph, Unknown
from actors.agents.recipes.objects import MISFITS, Hidden, Module, Parameter, Symbol, Unreadable
from actors.agents.recipes.shapes import PRODUCTS, RULES

IN_TORCH = {"gt": "gt", "lt": "lt", "ge": "ge", "le": "le", "eq": "eq", "ne": "ne",
            "and": "logical_and", "or": "logical_or", "not": "logical_not"}  # fmt: skip


class Leaving:
    """The part of the reader that leaves things to PyTorch."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.kept: list[str] = []  # what stays in PyTorch, for people
        self.kept_at: dict[str, int] = {}  # and the line on which it stands first
        self.misfits: dict[str, str] = {}  # tensors that no kernel can take, and why
        self.line = 0

    def reshaped(
        self, value: Tensor, bare: str, args: list[object], kwargs: dict[str, object]
    ) -> Tensor:
        """The torch expression's value with its shape, where a rule gives it."""
        rule = RULES.get(bare)
        if rule is None:
            return value
        try:
            shape = rule(*map(self.shape_of, args), **{
                k: self.shape_of(v) for k, v in kwargs.items() if k != "training"
            })  # fmt: skip
        except (Unknown, *MISFITS):
            return value
        if not isinstance(shape, tuple) or not all(type(n) is int and n > 0 for n in shape):
            return value
        node = self.graph[value.node]
        fresh = bare in PRODUCTS
        return whole(self.graph, self.graph.torch(node.text, node.args, shape, fresh=fresh))

    def shape_of(self, value: object) -> object:
        if isinstance(value, Tensor):
            if self.graph[value.node].mask:
                raise Unknown("the type of what PyTorch makes of booleans")
            return seen(self.graph, value)
        if isinstance(value, tuple | list):
            return tuple(self.shape_of(item) for item in value)
        return value

    def torch(self, text: str, args: list[object], kwargs: dict[str, object]) -> Tensor:
        """An expression that PyTorch evaluates: `text(args)`, or a method for ".text"."""
        if not text:
            raise Unreadable("a module is made while the forward runs")
        nodes: list[int] = []
        words = [self.rendered(arg, nodes) for arg in args]
        words += [f"{name}={self.rendered(value, nodes)}" for name, value in kwargs.items()]
        if text.startswith("."):
            whole_text = f"{words[0]}{text}({', '.join(words[1:])})"
        else:
            called = text.replace("{", "{{").replace("}", "}}")
            whole_text = f"{called}({', '.join(words)})"
        self.kept.append(text.removeprefix("torch.nn.functional."))
        return self.kept_node(whole_text, nodes)

    def kept_node(self, text: str, nodes: list[int]) -> Tensor:
        # two equal texts may be two draws of a dropout: each is a node of its own
        if self.kept:
            self.kept_at.setdefault(self.kept[-1], self.line)
        unique = text + " " * (len(self.kept) % 997)
        return Tensor(node=self.graph.torch(unique, tuple(nodes), None), groups=())

    def rendered(  # noqa: C901 - one case for each kind of value
        self, value: object, nodes: list[int]
    ) -> str:
        """Python text for an argument, with a placeholder for each tensor."""
        match value:
            case Tensor():
                if self.graph[value.node].op == "const":
                    return repr(self.graph[value.node].value)
                node = value.node
                if self.graph[node].shape is not None and not plain(self.graph, value):
                    node = stored(self.graph, value)
                if self.graph[node].mask:
                    return self.mask(node, nodes)
                nodes.append(node)
                return f"{{{len(nodes) - 1}}}"
            case bool() | int() | str() | None:
                return repr(value).replace("{", "{{").replace("}", "}}")
            case float():
                return repr(value) if math.isfinite(value) else f"float('{value}')"
            case slice():
                parts = (value.start, value.stop, value.step)
                return f"slice({', '.join(self.rendered(part, nodes) for part in parts)})"
            case tuple() | list():
                inner = ", ".join(self.rendered(item, nodes) for item in value)
                if isinstance(value, list):
                    return f"[{inner}]"
                return f"({inner},)" if len(value) == 1 else f"({inner})"
            case Symbol(spelled=text) | Hidden(text=text) | Module(text=text) if text:
                return text.replace("{", "{{").replace("}", "}}")
            case dict():
                pairs = (f"{self.rendered(k, nodes)}: {self.rendered(v, nodes)}"
                         for k, v in value.items())  # fmt: skip
                return f"{{{{{', '.join(pairs)}}}}}"
            case Parameter():
                return self.rendered(self.tensor(value), nodes)
            case _ if value is ...:
                return "..."
        raise Unreadable("an argument is not known, and can't be written down again")

    def mask(self, index: int, nodes: list[int]) -> str:
        """A comparison's result for PyTorch, which computes it anew: no kernel writes one."""
        node = self.graph[index]
        if node.op == "const":
            return repr(node.value)
        if not node.mask:
            nodes.append(index)
            return f"{{{len(nodes) - 1}}}"
        words = [self.mask(arg, nodes) for arg in node.args]
        if node.op not in IN_TORCH or words[0].startswith(("-", "0", "1", "2")):
            raise Unreadable("a comparison's result is needed by what stays in PyTorch")
        return f"torch.{IN_TORCH[node.op]}({', '.join(words)})"

    def tensor(self, value: object) -> Tensor:
        """A tensor for a parameter or tensor; its shape may be unknown."""
        if isinstance(value, Parameter):
            if value.dtype != "float32" and value.shape is not None:
                at = f" (line {value.line})" if value.line else ""
                self.misfits[value.text] = f"{value.text} is {value.dtype}{at}"
            if value.shape is None or value.dtype != "float32":
                text = value.text.replace("{", "{{").replace("}", "}}")
                return Tensor(node=self.graph.torch(text, (), None), groups=())
            return whole(self.graph, self.graph.leaf(value.text, value.shape))
        if isinstance(value, Tensor):
            return value
        kind = "number" if isinstance(value, int | float) else type(value).__name__.lower()
        raise Unknown(f"a {kind} where a tensor is wanted")
