"""When and where each node of a region is computed: its pass, and the loops that it varies in.

Shared by the C++ and the CUDA writer.
"""

from __future__ import annotations

import math

import msgspec

from actors.agents.recipes.codegen.math_functions import OPERATION_FORMS, literal
from actors.agents.recipes.ir.graph import REDUCTIONS, OperationGraph
from actors.agents.recipes.schedule.fusion import Region
from actors.agents.recipes.schedule.knobs import Knobs
from actors.agents.recipes.schedule.loop_nests import LoopNest, TensorAccess, prologue

NEUTRAL_ELEMENT = {"sum": "0.0f", "max": "-__builtin_inff()", "min": "__builtin_inff()"}
COMBINE_EXPRESSION = {"sum": "{0} + {1}", "max": "maximum({1}, {0})", "min": "minimum({1}, {0})"}


class Kernel(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel's source, and what it is called with: the nodes it reads and writes, in order."""

    name: str
    text: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    scratch: int = 0  # floats of working memory that it wants behind the outputs


class PassPlan:
    """The passes over a region's domain.

    Pass s computes the reductions whose operands need s reductions before them; a node's stage is
    the pass from which on it can be computed.
    """

    def __init__(
        self, graph: OperationGraph, region: Region, loops: LoopNest, knobs: Knobs
    ) -> None:
        self.graph, self.region, self.loops, self.knobs = graph, region, loops, knobs
        before = prologue(graph, region)
        self.nodes = sorted(region.nodes - before - {region.pool})
        self.loads = {load.node: load for load in loops.loads}
        self.pass_of: dict[int, int] = {}
        self.varying_dims: dict[int, frozenset[int]] = {}
        reduced = {d for d, flag in enumerate(loops.reduced) if flag}
        for load in loops.loads:
            self.pass_of[load.node] = 0
            self.varying_dims[load.node] = frozenset(d for d, s in enumerate(load.strides) if s)
        if region.pool is not None:
            self.pass_of[region.pool] = 0
            self.varying_dims[region.pool] = frozenset(range(len(loops.sizes)))
        for index in self.nodes:
            args = [a for a in graph[index].args if graph[a].op != "const"]
            stage = max((self.pass_of[a] for a in args), default=0)
            varies: frozenset[int] = frozenset().union(*(self.varying_dims[a] for a in args))
            if graph[index].op in REDUCTIONS:
                stage, varies = stage + 1, varies - reduced
            self.pass_of[index], self.varying_dims[index] = stage, varies
        self.last = max(self.pass_of[i] for i in self.nodes) if self.nodes else 0

    def is_reduction(self, index: int) -> bool:
        return self.graph[index].op in REDUCTIONS

    def reductions(self, stage: int) -> list[int]:
        """Those that this pass computes."""
        return [i for i in self.nodes if self.is_reduction(i) and self.pass_of[i] == stage + 1]

    def full_outputs(self, stage: int) -> list[int]:
        """Outputs over the whole domain that this pass writes."""
        return [
            i for i in self.region.outputs if self.has_full_shape(i) and self.pass_of[i] == stage
        ]

    def has_full_shape(self, index: int) -> bool:
        """Whether an output has the domain's shape, rather than the reduced one."""
        if not self.region.dims:
            return True
        return self.graph[index].shape == self.region.domain

    def reduced_outputs(self) -> list[int]:
        """Outputs of the reduced shape."""
        return [i for i in self.region.outputs if not self.has_full_shape(i)]

    def stages(self) -> list[int]:
        return [s for s in range(self.last + 1) if self.reductions(s) or self.full_outputs(s)]

    def pass_inputs(self, stage: int) -> list[int]:
        """What the inner loop of a pass has to have."""
        args = [self.graph[i].args[0] for i in self.reductions(stage)]
        return [*args, *self.full_outputs(stage)]

    def values_kept_between_passes(self, limit: int) -> dict[int, int]:
        """Nodes worth keeping from the pass that first computes them: node -> that pass.

        Those over the whole domain that a later pass uses, nearest to their uses.
        """
        if self.knobs.passes != "buffer":
            return {}
        first: dict[int, int] = {}
        kept: dict[int, int] = {}
        for stage in self.stages():
            todo, seen = list(self.pass_inputs(stage)), set[int]()
            while todo:
                index = todo.pop()
                if index in seen or index not in self.pass_of or index in self.loads:
                    continue
                seen.add(index)
                if self.is_reduction(index) or not self.varies_in_inner_loop(index):
                    continue
                if index in first and first[index] < stage:
                    kept[index] = first[index]
                    continue
                first[index] = stage
                todo.extend(self.graph[index].args)
        dear = {i: s for i, s in kept.items() if not self.graph[i].is_mask}
        return dict(sorted(dear.items())[:limit])

    def varies_in_inner_loop(self, index: int) -> bool:
        """Whether it changes within the reduced loops and from one lane to the next."""
        flags = self.loops.reduced
        varies = self.varying_dims[index]
        return len(flags) - 1 in varies and any(flags[d] for d in varies)

    def topological(self, wanted: list[int], have: dict[int, str]) -> list[int]:
        """The nodes to compute, in order, to have these, given those that have names."""
        needed: set[int] = set()
        todo = [i for i in wanted if i not in have]
        while todo:
            index = todo.pop()
            if index in needed or self.graph[index].op == "const":
                continue
            needed.add(index)
            if index in self.pass_of and index not in self.loads:
                todo.extend(a for a in self.graph[index].args if a not in have)
        return sorted(needed)

    def expression(self, index: int, names: dict[int, str]) -> str:
        """The expression of an elementwise node."""
        node = self.graph[index]
        words = [self.operand(arg, names) for arg in node.args]
        if node.op == "div":
            divisor = self.graph[node.args[1]]
            if divisor.op == "const" and self.can_use_inverse(divisor.value):
                return f"{words[0]} * K({literal(1.0 / divisor.value)})"
            if ~node.args[1] in names:  # ~index names the inverse of a node
                return f"{words[0]} * {names[~node.args[1]]}"
        return OPERATION_FORMS[node.op].format(*words)

    def can_use_inverse(self, value: float) -> bool:
        """Whether multiplying by the inverse is exact, or allowed."""
        if value == 0 or not math.isfinite(1.0 / value):
            return False
        return math.frexp(value)[0] in (0.5, -0.5) or self.knobs.maths == "quick"

    def divisors(self, indices: list[int], names: dict[int, str]) -> list[int]:
        """Divisors that are known outside of the loop that computes these nodes."""
        if self.knobs.maths != "quick":
            return []
        found = {
            self.graph[i].args[1]
            for i in indices
            if i in self.pass_of and self.graph[i].op == "div" and self.graph[i].args[1] in names
        }
        return sorted(found)

    def operand(self, index: int, names: dict[int, str]) -> str:
        node = self.graph[index]
        return f"K({literal(node.value)})" if node.op == "const" else names[index]


def address_expression(access: TensorAccess, dims: dict[int, str]) -> str:
    """The index arithmetic of an access, for loop variables by dimension."""
    parts = [str(access.offset)] if access.offset else []
    for d, variable in dims.items():
        step = access.strides[d]
        if step:
            parts.append(variable if step == 1 else f"{variable} * {step}")
    return " + ".join(parts) if parts else "0"
