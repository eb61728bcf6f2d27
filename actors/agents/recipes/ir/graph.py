"""The operation graph: the frontend builds it from a forward, the writers make kernels of it.

A node is a value.  Equal nodes are one node (hash-consing), so common subexpressions disappear.
Reductions keep their dimensions as size 1; broadcasting is right-aligned as in torch.

Example: `torch.softmax(x, dim=-1)` with x float32[64, 256] is
    0 leaf "x" [64, 256]      1 max of 0 over (1,) [64, 1]      2 sub of 0, 1 [64, 256]
    3 exp of 2 [64, 256]      4 sum of 3 over (1,) [64, 1]      5 div of 3, 4 [64, 256]
"""

from __future__ import annotations

import math

import msgspec

Shape = tuple[int, ...]

# Elementwise operations: name -> number of operands.  The writers know each of these names.
UNARY = frozenset(
    [
        "neg",
        "abs",
        "exp",
        "expm1",
        "log",
        "log1p",
        "sqrt",
        "rsqrt",
        "reciprocal",
        "tanh",
        "sigmoid",
        "erf",
        "relu",
        "silu",
        "gelu",
        "gelu_tanh",
        "softplus",
        "mish",
        "sin",
        "cos",
        "floor",
        "ceil",
        "round",
        "trunc",
        "sign",
        "to_float",
        "not",
        "finite_or_zero",
    ]
)
BINARY = frozenset(
    [
        "add",
        "sub",
        "mul",
        "div",
        "maximum",
        "minimum",
        "gt",
        "lt",
        "ge",
        "le",
        "eq",
        "ne",
        "and",
        "or",
    ]
)
TERNARY = frozenset({"where"})
ELEMENTWISE = UNARY | BINARY | TERNARY
MASKS = frozenset(
    ["gt", "lt", "ge", "le", "eq", "ne", "and", "or", "not"]
)  # these give a mask, not a float
REDUCTIONS = frozenset({"sum", "max", "min"})
POOLS = frozenset({"pool_sum", "pool_max"})


class UnsupportedOperationError(Exception):
    """No rule covers this operation; it then stays in PyTorch."""


class PoolGeometry(msgspec.Struct, frozen=True, kw_only=True):
    """A pooling window over the last two dimensions."""

    size: tuple[int, int]
    stride: tuple[int, int]
    pad: tuple[int, int]

    def output_shape(self, shape: Shape) -> Shape:
        """The shape after pooling."""
        height, width = (
            (length + 2 * pad - size) // stride + 1
            for length, size, stride, pad in zip(
                shape[-2:], self.size, self.stride, self.pad, strict=True
            )
        )
        if height < 1 or width < 1:
            raise UnsupportedOperationError("a pooling window larger than its input")
        return (*shape[:-2], height, width)


class GraphNode(msgspec.Struct, frozen=True, kw_only=True):
    """One value of the graph.

    op "leaf": a tensor named by Python text (an input, a parameter).
    op "torch": a Python expression that PyTorch computes, with `{0}`, `{1}` for its operands; its
    shape is None where it is not known.
    op "view": the memory of its operand with other sizes, strides and offset.
    op "const": a number.
    Every other op is an elementwise operation, a reduction over `dims`, or a pool.
    """

    op: str
    args: tuple[int, ...] = ()
    shape: Shape | None = ()
    value: float = 0.0
    text: str = ""
    dims: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    offset: int = 0
    pool: PoolGeometry | None = None
    fresh: bool = False  # PyTorch makes new memory for it, which no other tensor shares

    @property
    def is_mask(self) -> bool:
        """Whether its elements are booleans."""
        return self.op in MASKS

    @property
    def sizes(self) -> Shape:
        """The shape, for nodes that must have one."""
        if self.shape is None:
            raise UnsupportedOperationError("a tensor whose shape is not known")
        return self.shape

    @property
    def is_stored(self) -> bool:
        """Whether its value is in memory without a kernel of ours."""
        return self.op in ("leaf", "torch", "view")


class OperationGraph:
    """Nodes in the order in which they were made, which is a topological order."""

    def __init__(self) -> None:
        self.nodes: list[GraphNode] = []
        self.origin: list[int] = []  # the call of the forward that made the node first
        self.call = 0
        self.orders: dict[int, Shape] = {}  # of tensors whose order in memory is not their shape's
        self.function_of: dict[int, str] = {}  # torch's function that the node is the result of
        self._known: dict[GraphNode, int] = {}

    def __getitem__(self, index: int) -> GraphNode:
        return self.nodes[index]

    def add_node(self, node: GraphNode) -> int:
        """The index of this node, new or already there."""
        try:
            known = node in self._known
        except TypeError as error:  # not hashable: a size or a setting that is a list, a module, …
            raise UnsupportedOperationError("an argument of an unusual type") from error
        if not known:
            self._known[node] = len(self.nodes)
            self.nodes.append(node)
            self.origin.append(self.call)
        return self._known[node]

    def const(self, value: float) -> int:
        """A number that is in the kernel's text."""
        # -0.0 equals 0.0 and becomes the same node; no forward that we know depends on the sign.
        return self.add_node(GraphNode(op="const", value=float(value)))

    def leaf(self, text: str, shape: Shape) -> int:
        """A tensor that the forward is given: an argument, or "self.bias"."""
        return self.add_node(GraphNode(op="leaf", text=text, shape=shape))

    def torch_node(
        self, text: str, args: tuple[int, ...], shape: Shape | None, *, fresh: bool = False
    ) -> int:
        """A PyTorch expression of other nodes, "({0} @ {1})"; `shape`: None if it is not known."""
        return self.add_node(GraphNode(op="torch", text=text, args=args, shape=shape, fresh=fresh))

    def view(self, base: int, shape: Shape, strides: Shape | None = None, offset: int = 0) -> int:
        """The memory of `base` with other sizes: contiguous ones unless strides are given."""
        node = self[base]
        if strides is None:
            if node.op == "view" and node.strides != contiguous(node.sizes):
                raise UnsupportedOperationError("a reshape of a strided slice")
            strides, offset = contiguous(shape), node.offset
        if node.op == "view":
            base = node.args[0]
        whole = self[base]
        if whole.sizes == shape and strides == contiguous(shape) and offset == 0:
            return base
        return self.add_node(
            GraphNode(op="view", args=(base,), shape=shape, strides=strides, offset=offset)
        )

    def apply(self, op: str, *args: int) -> int:
        """An elementwise operation with broadcasting; simple constants are folded."""
        folded = fold_constants(op, [self[arg] for arg in args])
        if folded is not None:
            return self.const(folded) if isinstance(folded, float) else args[folded]
        shape = broadcast(*(self[arg].sizes for arg in args))
        return self.add_node(GraphNode(op=op, args=args, shape=shape))

    def reduce(self, op: str, arg: int, dims: tuple[int, ...]) -> int:
        """A reduction that keeps its dimensions as size 1.

        Dimensions that are not adjacent are reduced one run after the other: each node has one run.
        """
        sizes = self[arg].sizes
        wide = [d for d, n in enumerate(sizes) if n != 1]
        chosen = [d for d in wide if d in dims]
        while chosen:
            run = [chosen.pop()]
            while chosen and wide.index(chosen[-1]) == wide.index(run[0]) - 1:
                run.insert(0, chosen.pop())
            shape = tuple(1 if d in run else n for d, n in enumerate(self[arg].sizes))
            arg = self.add_node(GraphNode(op=op, args=(arg,), dims=tuple(run), shape=shape))
        return arg

    def pool(self, op: str, arg: int, geometry: PoolGeometry) -> int:
        """A pool over the last two dimensions."""
        shape = geometry.output_shape(self[arg].sizes)
        return self.add_node(GraphNode(op=op, args=(arg,), pool=geometry, shape=shape))

    def ancestors(self, roots: tuple[int, ...]) -> set[int]:
        """All nodes that the roots are computed from, the roots included."""
        seen: set[int] = set()
        todo = list(roots)
        while todo:
            index = todo.pop()
            if index not in seen:
                seen.add(index)
                todo.extend(self[index].args)
        return seen


def contiguous(shape: Shape) -> Shape:
    """Row-major strides in elements."""
    return tuple(math.prod(shape[d + 1 :]) for d in range(len(shape)))


def broadcast(*shapes: Shape) -> Shape:
    """The shape that these broadcast to."""
    rank = max(len(shape) for shape in shapes)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    sizes = []
    for column in zip(*padded, strict=True):
        wide = {n for n in column if n != 1}
        if len(wide) > 1:
            raise UnsupportedOperationError("shapes that do not broadcast")
        sizes.append(wide.pop() if wide else 1)
    return tuple(sizes)


def fold_constants(op: str, nodes: list[GraphNode]) -> float | int | None:
    """A float: the operation's value; an int: the operand that it equals; None: not known."""
    if op in ("add", "sub", "mul", "div") and len(nodes) == 2:
        left, right = nodes
        if right.op == "const" and right.value == (0.0 if op in ("add", "sub") else 1.0):
            return 0
        if left.op == "const" and left.value == {"add": 0.0, "mul": 1.0}.get(op):
            return 1
        if left.op == right.op == "const":
            if op == "div":
                return left.value / right.value if right.value else None
            a, b = left.value, right.value
            return a + b if op == "add" else a - b if op == "sub" else a * b
    if op == "neg" and nodes[0].op == "const":
        return -nodes[0].value
    return None
