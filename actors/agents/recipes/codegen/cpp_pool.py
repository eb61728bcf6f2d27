"""The C++ writer for pooling, with what comes before and after it in the same loop.

For each row of the result: the input rows under the pooling window are computed (the prologue) and
combined into one row, vector by vector; the window then runs along that row; the epilogue follows.
"""

from __future__ import annotations

from actors.agents.recipes.codegen.cpp import CppWriter
from actors.agents.recipes.codegen.kernel_writer import pool_of
from actors.agents.recipes.codegen.passes import (
    COMBINE_EXPRESSION,
    NEUTRAL_ELEMENT,
    Kernel,
    address_expression,
)
from actors.agents.recipes.ir.graph import OperationGraph
from actors.agents.recipes.schedule.fusion import Region
from actors.agents.recipes.schedule.knobs import Knobs
from actors.agents.recipes.schedule.loop_nests import prologue


class CppPools(CppWriter):
    """One kernel for a pool with its prologue and epilogue."""

    def __init__(self, graph: OperationGraph, region: Region, knobs: Knobs, name: str) -> None:
        super().__init__(graph, region, knobs, name)
        self.pool = pool_of(graph, region)
        self.taps = {tap.node: tap for tap in self.loops.pool_reads}
        self.prologue = prologue(graph, region)

    def write(self) -> Kernel:
        window, neutral = self.pool.geometry, NEUTRAL_ELEMENT[self.pool.operation]
        down, along = self.last - 1, self.last
        self.parallel(self.loops.units)
        self.lines.add(f"for (long u = 0; u < {self.loops.units}; ++u) {{")
        dims = self.index_variables(self.loops.outer_dims, "u", "u")
        self.advance_pointers(dims)
        planes = {d: v for d, v in dims.items() if d != down}
        span = max((self.loops.sizes[along] - 1) * window.stride[1] + window.size[1],
                   self.pool.width + 2 * window.pad[1])  # fmt: skip
        span += (window.stride[1] + 1) * self.knobs.vector  # whole vectors at the end, too
        self.lines.add(f"alignas(64) float under[{span}];")
        self.lines.add(f"for (long j = 0; j < {span}; ++j) under[j] = {neutral};")
        top = f"u{down} * {window.stride[0]} - {window.pad[0]}" if down in dims else "0"
        self.lines.add(f"const long top = {top};")
        self.lines.add(
            f"for (long h = top < 0 ? 0 : top; h < top + {window.size[0]}"
            f" && h < {self.pool.height}; ++h) {{"
        )
        self.input_row(planes)
        self.lines.add("}")
        self.epilogue()
        self.lines.add("}")
        return self.kernel()

    def input_row(self, planes: dict[int, str]) -> None:
        """Computes row `h` of the input and combines it into `under`."""
        dims = {**planes, self.last - 1: "h"}
        names: dict[int, str] = {}
        for tap in self.taps.values():
            self.lines.add(
                f"const {self.memory_type} *c{tap.node} ="
                f" {self.memory(tap)} + {address_expression(tap, dims)};"
            )
        for tap in self.taps.values():
            if not tap.strides[self.last]:
                self.read_tap(tap.node, f"K(*c{tap.node})", names)
        rest: list[int] = []
        for index in sorted(self.prologue):
            args = [a for a in self.graph[index].args if self.graph[a].op != "const"]
            if all(a in names for a in args):
                self.assign(index, names)
            else:
                rest.append(index)
        self.lines.add("const auto step = [&](const long j, const int live, int) "
                       "__attribute__((always_inline)) {")  # fmt: skip
        inside = dict(names)
        for tap in self.taps.values():
            stride = tap.strides[self.last]
            if stride == 0:
                continue
            text = f"load(c{tap.node} + j, live)"
            if stride != 1:
                text = f"gather(c{tap.node} + j * {stride}, {stride}, live)"
            self.read_tap(tap.node, text, inside)
        for index in rest:
            self.assign(index, inside)
        place = f"under + {self.pool.geometry.pad[1]} + j"
        joined = COMBINE_EXPRESSION[self.pool.operation].format(
            f"load({place}, live)", inside[self.pool.source]
        )
        self.lines.add(f"store({place}, {joined}, live);", "};")
        self.write_vector_loop("0", str(self.pool.width), self.knobs.unroll)

    def read_tap(self, node: int, text: str, names: dict[int, str]) -> None:
        """Declare what the pool reads of a tensor."""
        names[node] = self.declare(node, f"n{node}", self.loaded(node, text))

    def assign(self, index: int, names: dict[int, str]) -> None:
        """Declare a node whose operands have names."""
        text = self.passes.expression(index, names)
        names[index] = self.declare(index, f"n{index}", text)

    def epilogue(self) -> None:
        """What follows the pool, along one row of the result."""
        outputs = list(self.region.outputs)
        names: dict[int, str] = {}
        pointers = {load.node: f"a{load.node}" for load in self.loops.loads}
        names[self.pool.node] = "pool"
        self.compute_loop_invariants(outputs, names, pointers, {self.last})
        self.lines.add("const auto finish = [&](const long j, const int live) "
                       "__attribute__((always_inline)) {")  # fmt: skip
        step = self.pool.geometry.stride[1]
        read = {1: "load({}, W)", 2: "every_other({})"}.get(step, f"gather({{}}, {step}, W)")
        self.lines.add(f"V pool = {read.format(f'under + j * {step}')};")
        tap = read.format(f"under + j * {step} + k")
        joined = COMBINE_EXPRESSION[self.pool.operation].format("pool", tap)
        self.lines.add(f"for (int k = 1; k < {self.pool.geometry.size[1]}; ++k) pool = {joined};")
        self.compute(outputs, names, pointers, "j")
        for index in outputs:
            self.write_output(index, "j", f"o{index}", names)
        self.lines.add("};")
        width = self.loops.width
        self.lines.add("long at = 0;")
        self.lines.add(f"for (; at + W <= {width}; at += W) finish(at, W);")
        self.lines.add(f"if (at < {width}) finish(at, (int)({width} - at));")
