"""The C++ writer for reductions down columns: the reduced dimensions lie outside of the last one.

A piece of work is `block` neighbouring columns; each pass runs down them, a vector of columns at a
time, so that memory is read in order and no lane needs another lane's value.
"""

from __future__ import annotations

from actors.agents.recipes.codegen.cpp import MAX_STACK_FLOATS, CppWriter
from actors.agents.recipes.codegen.passes import COMBINE_EXPRESSION, NEUTRAL_ELEMENT, Kernel

PARTIAL_SUM_ROWS = 64  # rows that are summed before the sum is put aside: keeps rounding small


class CppColumns(CppWriter):
    """Reductions down columns; what a column keeps between passes is an array of `[k]` vectors."""

    def write(self) -> Kernel:
        width, lanes = self.loops.width, self.knobs.vector
        block = min(max(self.knobs.block // lanes, 1) * lanes, -(-width // lanes) * lanes)
        while block > lanes and self.loops.units * -(-width // block) < 4:
            block = max(lanes, block // 2 // lanes * lanes)  # enough blocks for the threads
        self.vectors_per_block = block // lanes
        buffers = self.passes.values_kept_between_passes(
            max(0, MAX_STACK_FLOATS // (self.loops.length * block))
        )
        self.parallel(self.loops.units * -(-width // block))
        self.open_block_loop("u", "r", self.loops.units, block)
        self.advance_pointers(self.index_variables(self.loops.outer_dims, "r", "u"))
        for index in buffers:
            self.lines.add(f"alignas(64) float b{index}[{self.loops.length * block}];")
        names: dict[int, str] = {}
        pointers = {load.node: f"a{load.node}" for load in self.loops.loads}
        in_loops = self.reduced_dims | {self.last}
        for stage in self.passes.stages():
            wanted = self.passes.pass_inputs(stage)
            self.compute_loop_invariants(wanted, names, pointers, in_loops)
            self.compute_between_passes(stage, names, pointers)
            self.write_pass(stage, names, buffers)
        self.write_reduced_outputs(names, pointers)
        self.lines.add("}")
        return self.kernel()

    def compute_between_passes(
        self, stage: int, names: dict[int, str], pointers: dict[int, str]
    ) -> None:
        """Computes, once a column, what the pass needs of earlier reductions' results."""
        chain = self.passes.topological(self.passes.pass_inputs(stage), names)
        per_column = [
            i for i in chain
            if self.passes.pass_of[i] > 0 and not self.passes.varying_dims[i] & self.reduced_dims
        ]  # fmt: skip
        if not per_column:
            return
        for index in per_column:
            self.lines.add(f"{self.vector_type(index)} n{index}[{self.vectors_per_block}];")
        self.open_column_loop()
        inside = dict(names)
        for index in self.passes.topological(per_column, inside):
            if index in self.passes.loads:
                text = self.loaded(index, self.load_vector(index, "j", pointers))
            else:
                text = self.passes.expression(index, inside)
            inside[index] = self.declare(index, f"m{index}", text)
        for index in per_column:
            self.lines.add(f"n{index}[k] = m{index};")
            names[index] = f"n{index}[k]"
        self.lines.add("}")
        self.compute_inverses(stage, names)

    def compute_inverses(self, stage: int, names: dict[int, str]) -> None:
        """Inverses of divisors that stay the same down a column."""
        chain = self.passes.topological(self.passes.pass_inputs(stage), names)
        for divisor in self.passes.divisors(chain, names):
            if ~divisor in names or not names[divisor].endswith("[k]"):
                continue
            self.lines.add(f"V i{divisor}[{self.vectors_per_block}];")
            self.open_column_loop()
            self.lines.add(f"i{divisor}[k] = 1.0f / {names[divisor]};", "}")
            names[~divisor] = f"i{divisor}[k]"

    def open_column_loop(self) -> None:
        """Opens a loop over the vectors of the block."""
        self.lines.add("for (long j = begin, k = 0; j < end; j += W, ++k) {")
        self.lines.add("const int live = end - j < W ? (int)(end - j) : W; (void)live;")

    def write_pass(self, stage: int, names: dict[int, str], buffers: dict[int, int]) -> None:
        """One pass down the columns; sums are put aside after every `PARTIAL_SUM_ROWS` rows."""
        reductions = self.passes.reductions(stage)
        self.compute_inverses(stage, names)
        for index in reductions:
            neutral = NEUTRAL_ELEMENT[self.graph[index].op]
            self.lines.add(
                f"V t{index}[{self.vectors_per_block}], s{index}[{self.vectors_per_block}];"
            )
            self.lines.add(
                f"for (int k = 0; k < {self.vectors_per_block}; ++k)"
                f" t{index}[k] = s{index}[k] = K({neutral});"
            )
        length = self.loops.length
        self.lines.add(f"for (long g = 0; g < {length}; g += {PARTIAL_SUM_ROWS}) {{")
        self.lines.add(
            f"const long stop = g + {PARTIAL_SUM_ROWS} < {length}"
            f" ? g + {PARTIAL_SUM_ROWS} : {length};"
        )
        self.lines.add("for (long row = g; row < stop; ++row) {")
        self.write_row(stage, dict(names), buffers)
        self.lines.add("}")
        for index in reductions:
            op = self.graph[index].op
            joined = COMBINE_EXPRESSION[op].format(f"t{index}[k]", f"s{index}[k]")
            self.lines.add(
                f"for (int k = 0; k < {self.vectors_per_block}; ++k)"
                f" {{ t{index}[k] = {joined}; s{index}[k] = K({NEUTRAL_ELEMENT[op]}); }}"
            )
        self.lines.add("}")
        for index in reductions:
            names[index] = f"t{index}[k]"

    def write_row(self, stage: int, names: dict[int, str], buffers: dict[int, int]) -> None:
        """One row of the block, a vector of columns at a time."""
        row = self.row_values(stage, names, buffers, self.loops.reduced_dims, "row")
        self.open_column_loop()
        place = f"(row * {self.vectors_per_block} + k) * W"
        self.compute_row(stage, row, buffers, place, "W")
        for index in self.passes.reductions(stage):
            operand = self.passes.operand(self.graph[index].args[0], row.names)
            joined = COMBINE_EXPRESSION[self.graph[index].op].format(f"s{index}[k]", operand)
            self.lines.add(f"s{index}[k] = {joined};")
        for index in self.passes.full_outputs(stage):
            self.write_output(index, f"{row.offset}j", f"o{index}", row.names)
        self.lines.add("}")

    def write_reduced_outputs(self, names: dict[int, str], pointers: dict[int, str]) -> None:
        """Outputs of the reduced shape, once a column."""
        outputs = self.passes.reduced_outputs()
        if not outputs:
            return
        self.compute_loop_invariants(outputs, names, pointers, {self.last})
        self.open_column_loop()
        self.compute(outputs, names, pointers, "j")
        for index in outputs:
            self.write_output(index, "j", f"o{index}", names)
        self.lines.add("}")
