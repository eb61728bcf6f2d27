"""The CUDA writer for pooling: a thread a result, with what comes before and after in place."""

from __future__ import annotations

from actors.agents.recipes.codegen.cuda import CudaWriter
from actors.agents.recipes.codegen.passes import NEUTRAL_ELEMENT, Kernel, address_expression
from actors.agents.recipes.schedule.loop_nests import prologue


class CudaPools(CudaWriter):
    def write(self) -> Kernel:
        pool = self.region.pool
        window = self.graph[pool].pool if pool is not None else None
        if pool is None or window is None:
            raise ValueError("a pool's writer was given no pool")
        op = self.graph[pool].op.removeprefix("pool_")
        source = self.graph[pool].args[0]
        height, width = self.graph[source].sizes[-2:]
        block, down, along = self.knobs.block, self.last - 1, self.last
        self.lines.add(f"const {self.count} t = ({self.count})blockIdx.x * {block} + threadIdx.x;")
        self.lines.add(f"if (t >= {self.layout.volume}) return;")
        dims = self.indices(tuple(range(self.last + 1)), "t", "u")
        planes = {d: v for d, v in dims.items() if d < down}
        self.lines.add(f"float best = {NEUTRAL_ELEMENT[op]};")
        for side, d, k in (("h", down, 0), ("w", along, 1)):
            size = height if side == "h" else width
            self.lines.add("#pragma unroll")
            self.lines.add(f"for (int k{side} = 0; k{side} < {window.size[k]}; ++k{side}) {{")
            self.lines.add(
                f"const {self.count} {side} = u{d} * {window.stride[k]} - {window.pad[k]}"
                f" + k{side};"
            )
            self.lines.add(f"if ({side} < 0 || {side} >= {size}) continue;")
        names: dict[int, str] = {}
        for tap in self.layout.pool_reads:
            base = f"p{self.bases.index(tap.base)}"
            where = address_expression(tap, planes | {down: "h", along: "w"})
            self.lines.add(f"const float n{tap.node} = {base}[{where}];")
            names[tap.node] = self.loaded(tap.node, f"n{tap.node}")
        self.assign(sorted(prologue(self.graph, self.region)), names)
        self.lines.add(f"best = JOIN_{op}(best, {names[source]});", "}", "}")
        after: dict[int, str] = {pool: "best"}
        outputs = list(self.region.outputs)
        for index in self.flow.topological(outputs, after):
            if index in self.flow.loads:
                load = self.flow.loads[index]
                base = f"p{self.bases.index(load.base)}"
                self.lines.add(f"const float m{index} = {base}[{address_expression(load, dims)}];")
                after[index] = self.loaded(index, f"m{index}")
            else:
                self.assign([index], after)
        for place, index in enumerate(outputs):
            self.lines.add(f"q{place}[t] = {self.flow.operand(index, after)};")
        self.close_function("pool", str(-(-self.layout.volume // block)), block)
        return self.kernel()
