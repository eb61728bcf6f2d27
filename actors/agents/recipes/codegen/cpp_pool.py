"""The C++ writer for pooling, with what comes before and after it in the same loop.

For each row of the result: the input rows under the window are computed (the prologue) and
combined into one row, vector by vector; the window then runs along that row; the epilogue follows.
"""

from __future__ import annotations

from actors.agents.recipes.codegen.cpp import CppWriter
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
    def __init__(self, graph: OperationGraph, region: Region, knobs: Knobs, name: str) -> None:
        super().__init__(graph, region, knobs, name)
        node = graph[region.pool] if region.pool is not None else None
        if region.pool is None or node is None or node.pool is None:
            raise ValueError("a pool's writer was given no pool")
        self.pool, self.window = region.pool, node.pool
        self.source = node.args[0]
        self.kind = node.op.removeprefix("pool_")
        self.height, self.width = graph[self.source].sizes[-2:]
        self.taps = {tap.node: tap for tap in self.layout.pool_reads}
        self.prologue = prologue(graph, region)

    def write(self) -> Kernel:
        window, neutral = self.window, NEUTRAL_ELEMENT[self.kind]
        down, along = self.last - 1, self.last
        self.parallel(self.layout.units)
        self.lines.add(f"for (long u = 0; u < {self.layout.units}; ++u) {{")
        dims = self.indices(self.layout.outer_dims, "u", "u")
        self.advance_pointers(dims)
        planes = {d: v for d, v in dims.items() if d != down}
        span = max((self.layout.sizes[along] - 1) * window.stride[1] + window.size[1],
                   self.width + 2 * window.pad[1])  # fmt: skip
        span += (window.stride[1] + 1) * self.knobs.vector  # whole vectors at the end, too
        self.lines.add(f"alignas(64) float under[{span}];")
        self.lines.add(f"for (long j = 0; j < {span}; ++j) under[j] = {neutral};")
        top = f"u{down} * {window.stride[0]} - {window.pad[0]}" if down in dims else "0"
        self.lines.add(f"const long top = {top};")
        self.lines.add(
            f"for (long h = top < 0 ? 0 : top; h < top + {window.size[0]}"
            f" && h < {self.height}; ++h) {{"
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
                f"const float *c{tap.node} = {self.pointer(tap)} + {address_expression(tap, dims)};"
            )
        fixed = [t for t in self.taps.values() if not t.strides[self.last]]
        for tap in fixed:
            mask = self.graph[tap.node].is_mask
            text = f"K(*c{tap.node})" + (" != 0.0f" if mask else "")
            self.lines.add(f"const {'VI' if mask else 'V'} n{tap.node} = {text};")
            names[tap.node] = f"n{tap.node}"
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
            at = f"load(c{tap.node} + j, live)"
            if stride != 1:
                at = f"gather(c{tap.node} + j * {stride}, {stride}, live)"
            mask = self.graph[tap.node].is_mask
            at += " != 0.0f" if mask else ""
            self.lines.add(f"const {'VI' if mask else 'V'} n{tap.node} = {at};")
            inside[tap.node] = f"n{tap.node}"
        for index in rest:
            self.assign(index, inside)
        place = f"under + {self.window.pad[1]} + j"
        joined = COMBINE_EXPRESSION[self.kind].format(f"load({place}, live)", inside[self.source])
        self.lines.add(f"store({place}, {joined}, live);", "};")
        self.vectors("0", str(self.width), self.knobs.unroll)

    def assign(self, index: int, names: dict[int, str]) -> None:
        kind = "VI" if self.graph[index].is_mask else "V"
        self.lines.add(f"const {kind} n{index} = {self.flow.expression(index, names)};")
        names[index] = f"n{index}"

    def epilogue(self) -> None:
        """What follows the pool, along one row of the result."""
        outputs = list(self.region.outputs)
        names: dict[int, str] = {}
        pointers = {load.node: f"a{load.node}" for load in self.layout.loads}
        names[self.pool] = "pool"
        self.compute_loop_invariants(outputs, names, pointers, {self.last})
        self.lines.add("const auto finish = [&](const long j, const int live) "
                       "__attribute__((always_inline)) {")  # fmt: skip
        step = self.window.stride[1]
        read = {1: "load({}, W)", 2: "every_other({})"}.get(step, f"gather({{}}, {step}, W)")
        self.lines.add(f"V pool = {read.format(f'under + j * {step}')};")
        tap = read.format(f"under + j * {step} + k")
        joined = COMBINE_EXPRESSION[self.kind].format("pool", tap)
        self.lines.add(f"for (int k = 1; k < {self.window.size[1]}; ++k) pool = {joined};")
        self.compute(outputs, names, pointers, "j")
        for index in outputs:
            self.writes(index, "j", f"o{index}", names)
        self.lines.add("};")
        width = self.layout.width
        self.lines.add("long at = 0;")
        self.lines.add(f"for (; at + W <= {width}; at += W) finish(at, W);")
        self.lines.add(f"if (at < {width}) finish(at, (int)({width} - at));")
