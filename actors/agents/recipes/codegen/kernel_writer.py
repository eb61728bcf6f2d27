"""What the C++ and the CUDA writers share: lines of source, loop variables, pointers.

A writer turns one region of the graph into one kernel.  In the text that it writes, a letter and a
number name a value; the number is the graph node's, and for `p` and `q` the argument's:

    p0, q0    a memory that is read, a memory that is written
    a7, o9    where node 7 is read and node 9 is written in this piece of work
    n12, i12  the value of node 12, and its inverse
    s12, t12  the running value of reduction 12 in a piece, and over all pieces so far
    r12       the result of reduction 12
    b12       node 12's values between two passes
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import msgspec

from actors.agents.recipes.codegen.passes import Kernel, PassPlan, address_expression
from actors.agents.recipes.ir.graph import OperationGraph, PoolGeometry
from actors.agents.recipes.schedule.fusion import Region
from actors.agents.recipes.schedule.knobs import Knobs
from actors.agents.recipes.schedule.loop_nests import LoopNest, TensorAccess, plan_loops


class SourceLines:
    """Lines of C++ or CUDA, indented by their braces."""

    def __init__(self, depth: int = 0) -> None:
        self.text: list[str] = []
        self.depth = depth

    def add(self, *lines: str) -> None:
        for line in lines:
            if line.startswith("}"):
                self.depth -= 1
            self.text.append(line if line.startswith("#") else "  " * self.depth + line)
            if line.endswith("{"):
                self.depth += 1


class RegionPool(msgspec.Struct, frozen=True, kw_only=True):
    """The pool of a region."""

    node: int
    source: int  # the node that the pool reads
    operation: str  # "sum" or "max"
    geometry: PoolGeometry
    height: int  # of the source
    width: int


def pool_of(graph: OperationGraph, region: Region) -> RegionPool:
    """Return the pool of a region that has one."""
    node = None if region.pool is None else graph[region.pool]
    if region.pool is None or node is None or node.pool is None:
        raise ValueError("a pool's writer was given no pool")
    height, width = graph[node.args[0]].sizes[-2:]
    return RegionPool(
        node=region.pool,
        source=node.args[0],
        operation=node.op.removeprefix("pool_"),
        geometry=node.pool,
        height=height,
        width=width,
    )


class KernelWriter(ABC):
    """Writes the kernel of one region."""

    memory_type = "float"  # of the tensors in memory; "E": a half
    value_type: str  # of a value in the kernel: a vector in C++, a float in CUDA
    index_type: str  # of a loop variable

    def __init__(self, graph: OperationGraph, region: Region, knobs: Knobs, name: str) -> None:
        self.graph, self.region, self.knobs, self.name = graph, region, knobs, name
        self.loops: LoopNest = plan_loops(graph, region)
        self.passes = PassPlan(graph, region, self.loops, knobs)
        self.lines = SourceLines(1)
        accesses = (*self.loops.loads, *self.loops.pool_reads)
        self.bases = tuple(dict.fromkeys(access.base for access in accesses))
        self.last = len(self.loops.sizes) - 1
        self.reduced_dims = set(self.loops.reduced_dims)

    @abstractmethod
    def write(self) -> Kernel:
        """Return the kernel."""

    def parameter_list(self) -> list[str]:
        """Return the kernel's parameters: what it reads, then what it writes."""
        kind = self.memory_type
        reads = [f"const {kind} *p{i}" for i in range(len(self.bases))]
        return [*reads, *(f"{kind} *q{i}" for i in range(len(self.loops.stores)))]

    # -- places --------------------------------------------------------------------------------

    def index_variables(self, dims: tuple[int, ...], variable: str, prefix: str) -> dict[int, str]:
        """Declare a loop variable for each of `dims`, which `variable` counts through together.

        Return the names by dimension.  Example: dims (0, 1) of sizes [4, 8] under `u` become
        `u0 = u / 8` and `u1 = u % 8`.
        """
        names: dict[int, str] = {}
        below = 1
        for place, d in enumerate(reversed(dims)):
            size = self.loops.sizes[d]
            text = variable if below == 1 else f"{variable} / {below}"
            if place < len(dims) - 1:
                text = self.remainder(text, size)
            names[d] = f"{prefix}{d}"
            self.lines.add(f"const {self.index_type} {prefix}{d} = {text};")
            below *= size
        return names

    @abstractmethod
    def remainder(self, text: str, size: int) -> str:
        """Return the text of `text % size`."""

    def memory(self, access: TensorAccess) -> str:
        """Return the parameter that holds the memory of a tensor that is read."""
        return f"p{self.bases.index(access.base)}"

    def input_pointer(self, access: TensorAccess, dims: dict[int, str]) -> None:
        """Declare where a tensor is read for these loop variables."""
        where = f"{self.memory(access)} + {address_expression(access, dims)}"
        self.lines.add(f"const {self.memory_type} *a{access.node} = {where};")

    def output_pointers(self, dims: dict[int, str]) -> None:
        """Declare where each output is written for these loop variables."""
        for place, access in enumerate(self.loops.stores):
            self.lines.add(
                f"{self.memory_type} *o{access.node} ="
                f" q{place} + {address_expression(access, dims)};"
            )

    # -- values --------------------------------------------------------------------------------

    def declare_inverses(self, chain: list[int], names: dict[int, str]) -> None:
        """Compute the inverse of each divisor in `chain` that has one value here."""
        for divisor in self.passes.divisors(chain, names):
            if ~divisor not in names and not names[divisor].endswith("[k]"):
                names[~divisor] = f"i{divisor}"
                self.lines.add(f"const {self.value_type} i{divisor} = 1.0f / {names[divisor]};")


def stride_terms(access: TensorAccess, dims: dict[int, str]) -> list[str]:
    """Return the terms of an offset along loop variables: `["v1 * 24", "v2 * 8"]`."""
    return [f"{v} * {access.strides[d]}" for d, v in dims.items() if access.strides[d]]
