"""The CUDA writer for reductions down columns: neighbouring threads have neighbouring columns.

With `threads` 0 one thread goes down each column; with 32 a block has 32 columns and its warps
share the rows.  Where columns are few and long, such as those of a weight's gradient, several
blocks share them, too: each pass is then a kernel of its own, and leaves one number for each block
and column, which the next pass combines.
"""

from __future__ import annotations

from actors.agents.recipes.codegen.cuda import CudaWriter
from actors.agents.recipes.codegen.kernel_writer import stride_terms
from actors.agents.recipes.codegen.passes import NEUTRAL_ELEMENT, Kernel
from actors.agents.recipes.schedule.loop_nests import TensorAccess

REGISTERS = 32  # floats of a column that a thread keeps between passes
WARP = 32
LONG_COLUMN = 256  # columns of at least so many numbers are shared by blocks, where they are few
FEW_BLOCKS = 256  # of 32 columns: fewer than fill a card
MOST_BLOCKS = 2048  # that share columns


class CudaColumns(CudaWriter):
    """Reductions down columns, by one thread or one warp's lane for each column."""

    def write(self) -> Kernel:
        columns = self.loops.units * self.loops.width
        blocks = -(-columns // WARP)
        if self.loops.length >= LONG_COLUMN and blocks <= FEW_BLOCKS:
            return self.write_split_columns(columns, blocks)
        across = WARP if self.knobs.threads == WARP else self.knobs.block
        down = self.knobs.block // across
        turns = -(-self.loops.length // down)
        buffers = self.passes.values_kept_between_passes(REGISTERS // turns)
        self.open_columns(columns, across, down)
        for index in buffers:
            self.lines.add(f"float b{index}[{turns}];")
        names: dict[int, str] = {}
        for stage in self.passes.stages():
            self.compute_loop_invariants(self.passes.pass_inputs(stage), names)
            reductions = self.passes.reductions(stage)
            self.start_reductions(reductions, turns)
            unroll = "" if buffers else f" {max(self.knobs.unroll, 1)}"
            self.lines.add(f"#pragma unroll{unroll}", f"for (int i = 0; i < {turns}; ++i) {{")
            self.lines.add(f"const {self.index_type} row = i * {down} + y;")
            self.lines.add(f"if (live && row < {self.loops.length}) {{")
            self.write_row(stage, dict(names), buffers)
            self.lines.add("}")
            self.spill_long_sums(reductions, turns, "i")
            self.lines.add("}")
            self.finish_reductions(reductions, turns)
            for index in reductions:
                self.combined_column(index, down)
                names[index] = f"r{index}"
        self.write_reduced_outputs(names, "live && y == 0")
        self.close_function("columns", str(-(-columns // across)), self.knobs.block)
        return self.kernel()

    def open_columns(self, columns: int, across: int, down: int) -> None:
        """The start of a kernel: a thread's column and place in it, and where its numbers are."""
        self.lines.add(f"const int x = threadIdx.x % {across}, y = threadIdx.x / {across};")
        self.lines.add(
            f"const {self.index_type} column = ({self.index_type})blockIdx.x * {across} + x;",
            f"const bool live = column < {columns};",
            f"const {self.index_type} u = live ? column / {self.loops.width} : 0,"
            f" j = live ? column % {self.loops.width} : 0;",
        )
        if down > 1:
            self.lines.add(f"__shared__ float box[{down}][{across}];")
        dims = self.index_variables(self.loops.outer_dims, "u", "u")
        self.pointers(
            self.loops.loads, dims | {self.last: "j"} if not self.has_periodic_load() else dims
        )
        self.output_pointers(dims | {self.last: "j"})

    # -- few, long columns -----------------------------------------------------------------------

    def write_split_columns(self, columns: int, blocks: int) -> Kernel:
        """A kernel a pass; block (x, y) has piece y of 32 columns."""
        down = self.knobs.block // WARP
        parts = max(1, min(-(-self.loops.length // (down * 8)), MOST_BLOCKS // blocks))
        turns = -(-self.loops.length // (parts * down))
        reductions = [i for i in self.passes.nodes if self.passes.is_reduction(i)]
        place = {index: k * columns * parts for k, index in enumerate(reductions)}
        self.scratch = len(reductions) * columns * parts
        for number, stage in enumerate(self.passes.stages()):
            names = self.open_pass(stage, place, (columns, down, parts))
            self.compute_loop_invariants(self.passes.pass_inputs(stage), names)
            made = self.passes.reductions(stage)
            self.start_reductions(made, turns)
            self.lines.add(f"#pragma unroll {max(self.knobs.unroll, 4)}")
            self.lines.add(f"for (int i = 0; i < {turns}; ++i) {{")
            self.lines.add(
                f"const {self.index_type} row ="
                f" ({self.index_type})blockIdx.y * {turns * down} + i * {down} + y;"
            )
            self.lines.add(f"if (live && row < {self.loops.length}) {{")
            self.write_row(stage, dict(names), {})
            self.lines.add("}")
            self.spill_long_sums(made, turns, "i")
            self.lines.add("}")
            self.finish_reductions(made, turns)
            for index in made:
                self.combined_column(index, down)
                where = f"{place[index]} + blockIdx.y * {columns} + column"
                self.lines.add(f"if (live && y == 0) work[{where}] = r{index};")
            self.close_function(f"pass{number}", f"dim3({blocks}, {parts})", self.knobs.block)
        if self.passes.reduced_outputs():
            names = self.open_pass(self.passes.last + 1, place, (columns, down, parts))
            self.write_reduced_outputs(names, "live && y == 0")
            self.close_function("end", str(blocks), self.knobs.block)
        return self.kernel()

    def open_pass(
        self, stage: int, place: dict[int, int], sizes: tuple[int, int, int]
    ) -> dict[int, str]:
        """The start of a pass's kernel, with the reductions of earlier passes.

        `sizes`: the number of columns, of warps in a block, and of blocks that share a column.
        """
        columns, down, parts = sizes
        self.open_columns(columns, WARP, down)
        names: dict[int, str] = {}
        for index, start in place.items():
            if self.passes.pass_of[index] > stage:
                continue
            op = self.graph[index].op
            self.lines.add(f"float s{index} = {NEUTRAL_ELEMENT[op]};")
            self.lines.add(
                f"for (int k = y; live && k < {parts}; k += {down})"
                f" s{index} = JOIN_{op}(s{index}, work[{start} + k * {columns} + column]);"
            )
            self.combined_column(index, down)
            names[index] = f"r{index}"
        return names

    def has_periodic_load(self) -> bool:
        return any(load.period for load in self.loops.loads)

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
        if not self.has_periodic_load() or not step:
            return f"a{load.node}"
        where = f"j % {load.period}" if load.period else "j"
        return f"a{load.node} + ({where}) * {step}"

    def load_invariant(self, load: TensorAccess) -> str:
        return f"*({self.column_address(load)})"

    def write_row(self, stage: int, names: dict[int, str], buffers: dict[int, int]) -> None:
        """One row of the block's columns."""
        dims = self.index_variables(self.loops.reduced_dims, "row", "v")
        new = [i for i, s in buffers.items() if s == stage]
        have = dict(names) | {i: f"b{i}[i]" for i, s in buffers.items() if s < stage}
        chain = self.passes.topological([*self.passes.pass_inputs(stage), *new], have)
        for index in chain:
            if index not in self.passes.loads:
                self.assign([index], have)
                continue
            load = self.passes.loads[index]
            where = " + ".join([self.column_address(load), *stride_terms(load, dims)])
            self.lines.add(f"const float n{index} = *({where});")
            have[index] = self.loaded(index, f"n{index}")
        for index in new:
            self.lines.add(f"b{index}[i] = {have[index]};")
        self.accumulate(stage, have)
        for index in self.passes.full_outputs(stage):
            store = next(a for a in self.loops.stores if a.node == index)
            parts = [f"{v} * {store.strides[d]}" for d, v in dims.items()]
            self.lines.add(f"o{index}[{' + '.join(parts)}] = {self.passes.operand(index, have)};")
