"""The CUDA writer for reductions along the last dimension.

A team of threads, a warp or a block, has a row.  Where rows are few and long, blocks share a row:
each pass is a kernel of its own, which leaves one number a block for the next to put together.
"""

from __future__ import annotations

from actors.agents.recipes.codegen.cuda import CudaWriter
from actors.agents.recipes.codegen.passes import NEUTRAL_ELEMENT, Kernel
from actors.agents.recipes.schedule.loop_nests import TensorAccess

REGISTERS = 32  # floats of a row that a thread keeps between passes
LONG_ROW = 1 << 15  # numbers from which on a row of few is shared by blocks


class CudaRows(CudaWriter):
    def write(self) -> Kernel:
        if self.layout.units < 64 and self.layout.length >= LONG_ROW:
            return self.write_split_rows()
        lanes = self.vector_width()
        team = 32 if self.knobs.threads == 32 else self.knobs.block
        teams = self.knobs.block // team
        self.turns = -(-self.layout.length // (team * lanes))
        kept = self.flow.values_kept_between_passes(REGISTERS // (self.turns * lanes))
        self.lines.add(f"const int lane = threadIdx.x % {team};")
        self.lines.add(
            f"const {self.count} u = ({self.count})blockIdx.x * {teams} + threadIdx.x / {team};"
        )
        if teams > 1:
            self.lines.add(f"if (u >= {self.layout.units}) return;")
        dims = self.indices(self.layout.outer_dims, "u", "u")
        self.pointers(self.layout.loads, dims)
        self.results(dims)
        for index in kept:
            self.lines.add(f"float b{index}[{self.turns}][{lanes}];")
        names: dict[int, str] = {}
        reduced = {d for d, flag in enumerate(self.layout.reduced) if flag}
        for stage in self.flow.passes():
            self.compute_loop_invariants(self.flow.pass_inputs(stage), names, reduced)
            made = self.flow.reductions(stage)
            self.start_reductions(made, self.turns)
            unroll = "" if kept else f" {self.knobs.unroll}"
            self.lines.add(f"#pragma unroll{unroll}", f"for (int i = 0; i < {self.turns}; ++i) {{")
            self.lines.add(f"const {self.count} at = (i * {team} + lane) * {lanes};")
            self.lines.add(f"if (at < {self.layout.length}) {{")
            self.write_iteration(stage, dict(names), kept, lanes, "i")
            self.lines.add("}")
            self.spill_long_sums(made, self.turns, "i")
            self.lines.add("}")
            self.finish_reductions(made, self.turns)
            for index in made:
                op = self.graph[index].op
                self.lines.add(f"const float r{index} = team_{op}<{team}>(s{index});")
                names[index] = f"r{index}"
        self.write_reduced_outputs(names, reduced, "lane == 0")
        self.close_function("rows", str(-(-self.layout.units // teams)), self.knobs.block)
        return self.kernel()

    def write_reduced_outputs(self, names: dict[int, str], reduced: set[int], who: str) -> None:
        """Outputs of the reduced shape, written by one thread of the team."""
        settled = self.flow.reduced_outputs()
        if settled:
            self.compute_loop_invariants(settled, names, reduced)
            self.lines.add(f"if ({who}) {{")
            for index in settled:
                self.lines.add(f"*o{index} = {self.flow.operand(index, names)};")
            self.lines.add("}")

    def write_iteration(
        self, stage: int, names: dict[int, str], kept: dict[int, int], lanes: int, turn: str
    ) -> None:
        """What a thread does at one place of its row: `lanes` neighbouring numbers."""
        width = self.layout.width
        self.lines.add(f"const {self.count} g = at / {width}, j = at % {width};")
        dims = self.indices(self.layout.inner_dims, "g", "v")
        wanted = self.flow.pass_inputs(stage)
        new = [i for i, s in kept.items() if s == stage]
        have = dict(names) | {i: f"b{i}[{turn}][c]" for i, s in kept.items() if s < stage}
        chain = self.flow.topological([*wanted, *new], have)
        loads = [self.flow.loads[i] for i in chain if i in self.flow.loads]
        for load in loads:
            self.lines.add(f"float l{load.node}[{lanes}];")
            self.load_row_vector(load, dims, lanes)
        written = self.flow.full_outputs(stage)
        for index in written:
            self.lines.add(f"float v{index}[{lanes}];")
        self.lines.add("#pragma unroll", f"for (int c = 0; c < {lanes}; ++c) {{")
        inside = have | {n.node: self.loaded(n.node, f"l{n.node}[c]") for n in loads}
        self.assign([i for i in chain if i not in self.flow.loads], inside)
        for index in new:
            self.lines.add(f"b{index}[{turn}][c] = {inside[index]};")
        for index in self.flow.reductions(stage):
            op = self.graph[index].op
            word = self.flow.operand(self.graph[index].args[0], inside)
            self.lines.add(f"s{index} = JOIN_{op}(s{index}, {word});")
        for index in written:
            self.lines.add(f"v{index}[c] = {self.flow.operand(index, inside)};")
        self.lines.add("}")
        for index in written:
            self.lines.add(f"push<{lanes}>(o{index} + at, v{index});")

    def load_row_vector(self, load: TensorAccess, dims: dict[int, str], lanes: int) -> None:
        """A load at `j` of the last dimension and at `dims` of the other reduced ones."""
        inner = [f"{v} * {load.strides[d]}" for d, v in dims.items() if load.strides[d]]
        step = load.strides[self.last]
        if inner and step and not load.period:
            name = f"c{load.node}"
            self.lines.add(f"const float *{name} = a{load.node} + {' + '.join(inner)};")
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
        self.parts = max(1, min(512, -(-self.layout.length // each)))
        each = -(-self.layout.length // (self.parts * lanes)) * lanes
        made = [i for i in self.flow.nodes if self.flow.is_reduction(i)]
        place = {index: k * self.layout.units * self.parts for k, index in enumerate(made)}
        self.scratch = len(made) * self.layout.units * self.parts
        reduced = {d for d, flag in enumerate(self.layout.reduced) if flag}
        for number, stage in enumerate(self.flow.passes()):
            names = self.open_pass_kernel(stage, place)
            self.compute_loop_invariants(self.flow.pass_inputs(stage), names, reduced)
            now = self.flow.reductions(stage)
            turns = each // (block * lanes)
            self.start_reductions(now, turns)
            start = f"({self.count})blockIdx.x * {each}"
            self.lines.add(f"const {self.count} stop = min({start} + {each}, ({self.count})"
                           f"{self.layout.length});")  # fmt: skip
            self.lines.add(f"#pragma unroll {self.knobs.unroll}")
            self.lines.add(f"for ({self.count} at = {start} + threadIdx.x * {lanes}; at < stop;"
                           f" at += {block * lanes}) {{")  # fmt: skip
            self.write_iteration(stage, dict(names), {}, lanes, "0")
            self.spill_long_sums(now, turns, f"(at / {block * lanes})")
            self.lines.add("}")
            self.finish_reductions(now, turns)
            for index in now:
                op = self.graph[index].op
                self.lines.add(f"const float r{index} = team_{op}<{block}>(s{index});")
                where = f"{place[index]} + u * {self.parts} + blockIdx.x"
                self.lines.add(f"if (threadIdx.x == 0) work[{where}] = r{index};")
            self.close_function(f"pass{number}", f"dim3({self.parts}, {self.layout.units})", block)
        if self.flow.reduced_outputs():
            names = self.open_pass_kernel(self.flow.last + 1, place)
            self.write_reduced_outputs(names, reduced, "threadIdx.x == 0")
            self.close_function("end", f"dim3(1, {self.layout.units})", block)
        return self.kernel()

    def open_pass_kernel(self, stage: int, place: dict[int, int]) -> dict[int, str]:
        """The start of a pass's kernel: its row, and the reductions of earlier passes."""
        self.lines.add(f"const {self.count} u = blockIdx.y;")
        dims = self.indices(self.layout.outer_dims, "u", "u")
        self.pointers(self.layout.loads, dims)
        self.results(dims)
        names: dict[int, str] = {}
        block = self.knobs.block
        for index, start in place.items():
            if self.flow.pass_of[index] > stage:
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
