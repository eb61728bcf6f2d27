"""The CUDA writer for reductions along the last dimension.

A team of threads, which is a warp or a block, has one row.  Where rows are few and long, several
blocks share a row: each pass is then a kernel of its own, and leaves one number for each block,
which the next pass combines.
"""

from __future__ import annotations

from actors.agents.recipes.codegen.cuda import CudaWriter
from actors.agents.recipes.codegen.kernel_writer import stride_terms
from actors.agents.recipes.codegen.passes import NEUTRAL_ELEMENT, Kernel
from actors.agents.recipes.schedule.loop_nests import TensorAccess

REGISTERS = 32  # floats of a row that a thread keeps between passes
LONG_ROW = 1 << 15  # a row of at least so many numbers is shared by blocks, where rows are few


class CudaRows(CudaWriter):
    """Reductions along rows, by one team for each row or by several blocks."""

    def write(self) -> Kernel:
        if self.loops.units < 64 and self.loops.length >= LONG_ROW:
            return self.write_split_rows()
        lanes = self.vector_width()
        team = 32 if self.knobs.threads == 32 else self.knobs.block
        teams = self.knobs.block // team
        self.turns = -(-self.loops.length // (team * lanes))
        buffers = self.passes.values_kept_between_passes(REGISTERS // (self.turns * lanes))
        self.lines.add(f"const int lane = threadIdx.x % {team};")
        self.lines.add(
            f"const {self.index_type} u ="
            f" ({self.index_type})blockIdx.x * {teams} + threadIdx.x / {team};"
        )
        if teams > 1:
            self.lines.add(f"if (u >= {self.loops.units}) return;")
        dims = self.index_variables(self.loops.outer_dims, "u", "u")
        self.pointers(self.loops.loads, dims)
        self.output_pointers(dims)
        for index in buffers:
            self.lines.add(f"float b{index}[{self.turns}][{lanes}];")
        names: dict[int, str] = {}
        for stage in self.passes.stages():
            self.write_pass(stage, names, buffers, lanes, team)
        self.write_reduced_outputs(names, "lane == 0")
        self.close_function("rows", str(-(-self.loops.units // teams)), self.knobs.block)
        return self.kernel()

    def write_pass(
        self, stage: int, names: dict[int, str], buffers: dict[int, int], lanes: int, team: int
    ) -> None:
        """One pass of a team over its row; `names` gets the pass's reductions."""
        self.compute_loop_invariants(self.passes.pass_inputs(stage), names)
        reductions = self.passes.reductions(stage)
        self.start_reductions(reductions, self.turns)
        unroll = "" if buffers else f" {self.knobs.unroll}"
        self.lines.add(f"#pragma unroll{unroll}", f"for (int i = 0; i < {self.turns}; ++i) {{")
        self.lines.add(f"const {self.index_type} at = (i * {team} + lane) * {lanes};")
        self.lines.add(f"if (at < {self.loops.length}) {{")
        self.write_iteration(stage, dict(names), buffers, lanes, "i")
        self.lines.add("}")
        self.spill_long_sums(reductions, self.turns, "i")
        self.lines.add("}")
        self.finish_reductions(reductions, self.turns)
        for index in reductions:
            op = self.graph[index].op
            self.lines.add(f"const float r{index} = team_{op}<{team}>(s{index});")
            names[index] = f"r{index}"

    def write_iteration(
        self, stage: int, names: dict[int, str], buffers: dict[int, int], lanes: int, turn: str
    ) -> None:
        """What a thread does at one place of its row: `lanes` neighbouring numbers."""
        width = self.loops.width
        self.lines.add(f"const {self.index_type} g = at / {width}, j = at % {width};")
        dims = self.index_variables(self.loops.inner_dims, "g", "v")
        wanted = self.passes.pass_inputs(stage)
        new = [i for i, s in buffers.items() if s == stage]
        have = dict(names) | {i: f"b{i}[{turn}][c]" for i, s in buffers.items() if s < stage}
        chain = self.passes.topological([*wanted, *new], have)
        loads = [self.passes.loads[i] for i in chain if i in self.passes.loads]
        for load in loads:
            self.lines.add(f"float l{load.node}[{lanes}];")
            self.load_row_vector(load, dims, lanes)
        written = self.passes.full_outputs(stage)
        for index in written:
            self.lines.add(f"float v{index}[{lanes}];")
        self.lines.add("#pragma unroll", f"for (int c = 0; c < {lanes}; ++c) {{")
        inside = have | {n.node: self.loaded(n.node, f"l{n.node}[c]") for n in loads}
        self.assign([i for i in chain if i not in self.passes.loads], inside)
        for index in new:
            self.lines.add(f"b{index}[{turn}][c] = {inside[index]};")
        self.accumulate(stage, inside)
        for index in written:
            self.lines.add(f"v{index}[c] = {self.passes.operand(index, inside)};")
        self.lines.add("}")
        for index in written:
            self.lines.add(f"push<{lanes}>(o{index} + at, v{index});")

    def load_row_vector(self, load: TensorAccess, dims: dict[int, str], lanes: int) -> None:
        """A load at `j` of the last dimension and at `dims` of the other reduced ones."""
        inner = stride_terms(load, dims)
        step = load.strides[self.last]
        if inner and step and not load.period:
            name = f"c{load.node}"
            self.lines.add(
                f"const {self.memory_type} *{name} = a{load.node} + {' + '.join(inner)};"
            )
            for c in range(lanes if not self.can_load_vector(load, lanes) else 0):
                self.lines.add(f"l{load.node}[{c}] = {name}[(j + {c}) * {step}];")
            if self.can_load_vector(load, lanes):
                self.lines.add(f"pull<{lanes}>({name} + j, l{load.node});")
        elif step:
            self.load_vector(load, "j", lanes, f"l{load.node}")
        else:
            where = " + ".join([f"a{load.node}", *inner])
            for c in range(lanes):
                self.lines.add(f"l{load.node}[{c}] = *({where});")

    # -- few, long rows --------------------------------------------------------------------------

    def write_split_rows(self) -> Kernel:
        """A kernel a pass; block (x, y) has piece x of row y."""
        lanes, block = self.vector_width(), self.knobs.block
        each = block * lanes * max(4, self.knobs.unroll)
        self.parts = max(1, min(512, -(-self.loops.length // each)))
        each = -(-self.loops.length // (self.parts * lanes)) * lanes
        reductions = [i for i in self.passes.nodes if self.passes.is_reduction(i)]
        place = {index: k * self.loops.units * self.parts for k, index in enumerate(reductions)}
        self.scratch = len(reductions) * self.loops.units * self.parts
        for number, stage in enumerate(self.passes.stages()):
            names = self.open_pass_kernel(stage, place)
            self.compute_loop_invariants(self.passes.pass_inputs(stage), names)
            made = self.passes.reductions(stage)
            turns = each // (block * lanes)
            self.start_reductions(made, turns)
            start = f"({self.index_type})blockIdx.x * {each}"
            self.lines.add(
                f"const {self.index_type} stop ="
                f" min({start} + {each}, ({self.index_type}){self.loops.length});",
                f"#pragma unroll {self.knobs.unroll}",
                f"for ({self.index_type} at = {start} + threadIdx.x * {lanes}; at < stop;"
                f" at += {block * lanes}) {{",
            )
            self.write_iteration(stage, dict(names), {}, lanes, "0")
            self.spill_long_sums(made, turns, f"(at / {block * lanes})")
            self.lines.add("}")
            self.finish_reductions(made, turns)
            for index in made:
                op = self.graph[index].op
                self.lines.add(f"const float r{index} = team_{op}<{block}>(s{index});")
                where = f"{place[index]} + u * {self.parts} + blockIdx.x"
                self.lines.add(f"if (threadIdx.x == 0) work[{where}] = r{index};")
            self.close_function(f"pass{number}", f"dim3({self.parts}, {self.loops.units})", block)
        if self.passes.reduced_outputs():
            names = self.open_pass_kernel(self.passes.last + 1, place)
            self.write_reduced_outputs(names, "threadIdx.x == 0")
            self.close_function("end", f"dim3(1, {self.loops.units})", block)
        return self.kernel()

    def open_pass_kernel(self, stage: int, place: dict[int, int]) -> dict[int, str]:
        """The start of a pass's kernel: its row, and the reductions of earlier passes."""
        self.lines.add(f"const {self.index_type} u = blockIdx.y;")
        dims = self.index_variables(self.loops.outer_dims, "u", "u")
        self.pointers(self.loops.loads, dims)
        self.output_pointers(dims)
        names: dict[int, str] = {}
        block = self.knobs.block
        for index, start in place.items():
            if self.passes.pass_of[index] > stage:
                continue
            op = self.graph[index].op
            self.lines.add(f"float w{index} = {NEUTRAL_ELEMENT[op]};")
            self.lines.add(
                f"for (int k = threadIdx.x; k < {self.parts}; k += {block})"
                f" w{index} = JOIN_{op}(w{index}, work[{start} + u * {self.parts} + k]);"
            )
            self.lines.add(f"const float r{index} = team_{op}<{block}>(w{index});")
            names[index] = f"r{index}"
        return names
