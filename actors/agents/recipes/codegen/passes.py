"""The passes of a kernel: in which pass each node is computed, and in which loops it varies.

The C++ and the CUDA writers share this file.  Example: a softmax has three passes over each row,
one for the maximum, one for the sum of exponentials, one that writes the result.
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
    """A kernel's source, and its arguments: the nodes it reads and writes, in order."""

    name: str
    text: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    scratch: int = 0  # floats of working memory, passed after the outputs


class PassPlan:
    """The passes over a region's domain.

    Stage s is the pass that computes the reductions whose operands need s reductions before them.
    `pass_of[node]` is the first stage in which a node can be computed; a reduction made in stage s
    is available from stage s + 1.  `varying_dims[node]` are the loop dimensions in which it varies.
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
        """The reductions that this pass computes."""
        return [i for i in self.nodes if self.is_reduction(i) and self.pass_of[i] == stage + 1]

    def full_outputs(self, stage: int) -> list[int]:
        """The outputs over the whole domain that this pass writes."""
        return [
            i for i in self.region.outputs if self.has_full_shape(i) and self.pass_of[i] == stage
        ]

    def has_full_shape(self, index: int) -> bool:
        """Whether an output has the domain's shape, not the reduced one."""
        if not self.region.dims:
            return True
        return self.graph[index].shape == self.region.domain

    def reduced_outputs(self) -> list[int]:
        """The outputs of the reduced shape."""
        return [i for i in self.region.outputs if not self.has_full_shape(i)]

    def stages(self) -> list[int]:
        """The stages in which something is reduced or written."""
        return [s for s in range(self.last + 1) if self.reductions(s) or self.full_outputs(s)]

    def pass_inputs(self, stage: int) -> list[int]:
        """The nodes that the inner loop of a pass needs."""
        args = [self.graph[i].args[0] for i in self.reductions(stage)]
        return [*args, *self.full_outputs(stage)]

    def values_kept_between_passes(self, limit: int) -> dict[int, int]:
        """The nodes to store in the pass that first computes them: node -> that stage.

        These are nodes that vary in the reduced loops and that a later pass uses; of a chain, the
        one nearest to its use.  At most `limit` of them.
        """
        if self.knobs.passes != "buffer":
            return {}
        first: dict[int, int] = {}
        stored: dict[int, int] = {}
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
                    stored[index] = first[index]
                    continue
                first[index] = stage
                todo.extend(self.graph[index].args)
        floats = {i: s for i, s in stored.items() if not self.graph[i].is_mask}
        return dict(sorted(floats.items())[:limit])

    def varies_in_inner_loop(self, index: int) -> bool:
        """Whether it varies in the reduced loops and from one vector lane to the next."""
        flags = self.loops.reduced
        varies = self.varying_dims[index]
        return len(flags) - 1 in varies and any(flags[d] for d in varies)

    def topological(self, wanted: list[int], have: dict[int, str]) -> list[int]:
        """The nodes to compute for `wanted`, in order; nodes in `have` are computed already."""
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
        """The text of an elementwise node, such as "n3 + K(1.0f)"; `names` has its operands."""
        node = self.graph[index]
        operands = [self.operand(arg, names) for arg in node.args]
        if node.op == "div":
            divisor = self.graph[node.args[1]]
            if divisor.op == "const" and self.can_use_inverse(divisor.value):
                return f"{operands[0]} * K({literal(1.0 / divisor.value)})"
            if ~node.args[1] in names:  # ~index names the inverse of a node
                return f"{operands[0]} * {names[~node.args[1]]}"
        return OPERATION_FORMS[node.op].format(*operands)

    def can_use_inverse(self, value: float) -> bool:
        """Whether multiplication by the inverse is exact, or allowed by the knobs."""
        if value == 0 or not math.isfinite(1.0 / value):
            return False
        return math.frexp(value)[0] in (0.5, -0.5) or self.knobs.maths == "quick"

    def divisors(self, indices: list[int], names: dict[int, str]) -> list[int]:
        """The divisors of these nodes that are known before the loop that computes the nodes."""
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
    """The offset of an access for loop variables by dimension, such as "64 + u0 * 256 + j"."""
    parts = [str(access.offset)] if access.offset else []
    for d, variable in dims.items():
        step = access.strides[d]
        if step:
            parts.append(variable if step == 1 else f"{variable} * {step}")
    return " + ".join(parts) if parts else "0"
