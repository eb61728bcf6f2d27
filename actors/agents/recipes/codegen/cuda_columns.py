"""The CUDA writer for reductions down columns: neighbouring threads have neighbouring columns.

With `threads` 0 a thread walks down its column alone; with 32 a block has 32 columns and its
warps share the rows, which helps where columns are few and long.
"""

from __future__ import annotations

from actors.agents.recipes.codegen.cuda import CudaWriter
from actors.agents.recipes.codegen.passes import Kernel
from actors.agents.recipes.schedule.loop_nests import TensorAccess

REGISTERS = 32  # floats of a column that a thread keeps between passes


class CudaColumns(CudaWriter):
    def write(self) -> Kernel:
        across = 32 if self.knobs.threads == 32 else self.knobs.block
        down = self.knobs.block // across
        columns = self.layout.units * self.layout.width
        turns = -(-self.layout.length // down)
        kept = self.flow.values_kept_between_passes(REGISTERS // turns)
        self.lines.add(f"const int x = threadIdx.x % {across}, y = threadIdx.x / {across};")
        self.lines.add(
            f"const {self.count} column = ({self.count})blockIdx.x * {across} + x;",
            f"const bool live = column < {columns};",
            f"const {self.count} u = live ? column / {self.layout.width} : 0,"
            f" j = live ? column % {self.layout.width} : 0;",
        )
        if down > 1:
            self.lines.add(f"__shared__ float box[{down}][{across}];")
        dims = self.indices(self.layout.outer_dims, "u", "u")
        self.pointers(
            self.layout.loads, dims | {self.last: "j"} if not self.write_periodic() else dims
        )
        self.results(dims | {self.last: "j"})
        for index in kept:
            self.lines.add(f"float b{index}[{turns}];")
        names: dict[int, str] = {}
        reduced = {d for d, flag in enumerate(self.layout.reduced) if flag}
        for stage in self.flow.passes():
            self.compute_column_invariants(self.flow.pass_inputs(stage), names, reduced)
            made = self.flow.reductions(stage)
            self.start_reductions(made, turns)
            unroll = "" if kept else f" {max(self.knobs.unroll, 1)}"
            self.lines.add(f"#pragma unroll{unroll}", f"for (int i = 0; i < {turns}; ++i) {{")
            self.lines.add(f"const {self.count} row = i * {down} + y;")
            self.lines.add(f"if (live && row < {self.layout.length}) {{")
            self.write_row(stage, dict(names), kept)
            self.lines.add("}")
            self.spill_long_sums(made, turns, "i")
            self.lines.add("}")
            self.finish_reductions(made, turns)
            for index in made:
                self.combined_column(index, down)
                names[index] = f"r{index}"
        settled = self.flow.reduced_outputs()
        if settled:
            self.compute_column_invariants(settled, names, reduced)
            self.lines.add("if (live && y == 0) {")
            for index in settled:
                self.lines.add(f"*o{index} = {self.flow.operand(index, names)};")
            self.lines.add("}")
        self.close_function("columns", str(-(-columns // across)), self.knobs.block)
        return self.kernel()

    def write_periodic(self) -> bool:
        return any(load.period for load in self.layout.loads)

    def combined_column(self, index: int, down: int) -> None:
        """The column's result, from all threads that share it."""
        op = self.graph[index].op
        if down == 1:
            self.lines.add(f"const float r{index} = s{index};")
            return
        self.lines.add("__syncthreads();", f"box[y][x] = s{index};", "__syncthreads();")
        self.lines.add(f"float r{index} = box[0][x];")
        self.lines.add(
            f"for (int k = 1; k < {down}; ++k) r{index} = JOIN_{op}(r{index}, box[k][x]);"
        )

    def column_address(self, load: TensorAccess) -> str:
        """Where a column's number of this tensor is, the reduced dimensions aside."""
        step = load.strides[self.last]
        if not self.write_periodic() or not step:
            return f"a{load.node}"
        where = f"j % {load.period}" if load.period else "j"
        return f"a{load.node} + ({where}) * {step}"

    def compute_column_invariants(
        self, wanted: list[int], names: dict[int, str], reduced: set[int]
    ) -> None:
        """What stays the same down a column."""
        chain = self.flow.topological(wanted, names)
        for index in [i for i in chain if not self.flow.varies[i] & reduced]:
            if index in self.flow.loads:
                self.lines.add(
                    f"const float n{index} = *({self.column_address(self.flow.loads[index])});"
                )
                names[index] = self.loaded(index, f"n{index}")
            else:
                self.assign([index], names)
        for divisor in self.flow.divisors(chain, names):
            if ~divisor not in names:
                names[~divisor] = f"i{divisor}"
                self.lines.add(f"const float i{divisor} = 1.0f / {names[divisor]};")

    def write_row(self, stage: int, names: dict[int, str], kept: dict[int, int]) -> None:
        dims = self.indices(
            tuple(d for d, flag in enumerate(self.layout.reduced) if flag), "row", "v"
        )
        new = [i for i, s in kept.items() if s == stage]
        have = dict(names) | {i: f"b{i}[i]" for i, s in kept.items() if s < stage}
        chain = self.flow.topological([*self.flow.pass_inputs(stage), *new], have)
        for index in chain:
            if index not in self.flow.loads:
                self.assign([index], have)
                continue
            load = self.flow.loads[index]
            parts = [f"{v} * {load.strides[d]}" for d, v in dims.items() if load.strides[d]]
            self.lines.add(
                f"const float n{index} = *({' + '.join([self.column_address(load), *parts])});"
            )
            have[index] = self.loaded(index, f"n{index}")
        for index in new:
            self.lines.add(f"b{index}[i] = {have[index]};")
        for index in self.flow.reductions(stage):
            word = self.flow.operand(self.graph[index].args[0], have)
            self.lines.add(f"s{index} = JOIN_{self.graph[index].op}(s{index}, {word});")
        for index in self.flow.full_outputs(stage):
            store = next(a for a in self.layout.stores if a.node == index)
            parts = [f"{v} * {store.strides[d]}" for d, v in dims.items()]
            self.lines.add(f"o{index}[{' + '.join(parts)}] = {self.flow.operand(index, have)};")
