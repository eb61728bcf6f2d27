"""The C++ writer for reductions down columns: the reduced dimensions lie outside of the last one.

A piece of work is `block` neighbouring columns; each pass runs down them, a vector of columns at a
time, so that memory is read in order and no lane has to talk to another.
"""

from __future__ import annotations

import math

from actors.agents.recipes.codegen.cpp import MAX_STACK_BYTES, CppWriter
from actors.agents.recipes.codegen.passes import COMBINE_EXPRESSION, NEUTRAL_ELEMENT, Kernel

COLUMN_BLOCK = 64  # rows that are summed before the sum is put aside: keeps rounding small


class CppColumns(CppWriter):
    def write(self) -> Kernel:
        width, lanes = self.layout.width, self.knobs.vector
        block = min(max(self.knobs.block // lanes, 1) * lanes, -(-width // lanes) * lanes)
        while block > lanes and self.layout.units * -(-width // block) < 4:
            block = max(lanes, block // 2 // lanes * lanes)  # enough pieces for the threads
        pieces = -(-width // block)
        self.vectors_each = block // lanes
        kept = self.flow.values_kept_between_passes(
            max(0, MAX_STACK_BYTES // (self.layout.length * block))
        )
        count = self.layout.units * pieces
        self.parallel(count)
        self.lines.add(f"for (long u = 0; u < {count}; ++u) {{")
        self.lines.add(f"const long r = u / {pieces}, begin = (u % {pieces}) * {block};")
        self.lines.add(f"const long end = begin + {block} < {width} ? begin + {block} : {width};")
        dims = self.indices(self.layout.outer_dims, "r", "u")
        self.advance_pointers(dims)
        for index in kept:
            self.lines.add(f"alignas(64) float b{index}[{self.layout.length * block}];")
        names: dict[int, str] = {}
        pointers = {load.node: f"a{load.node}" for load in self.layout.loads}
        fixed = {d for d, flag in enumerate(self.layout.reduced) if flag} | {self.last}
        for stage in self.flow.passes():
            self.compute_loop_invariants(self.flow.pass_inputs(stage), names, pointers, fixed)
            self.compute_between_passes(stage, names, pointers)
            self.write_pass(stage, names, kept)
        self.write_reduced_outputs(names, pointers)
        self.lines.add("}")
        return self.kernel()

    def write_columns(self) -> set[int]:
        return {d for d, flag in enumerate(self.layout.reduced) if flag}

    def compute_between_passes(
        self, stage: int, names: dict[int, str], pointers: dict[int, str]
    ) -> None:
        """Computes, once a column, what the pass needs of earlier reductions' results."""
        chain = self.flow.topological(self.flow.pass_inputs(stage), names)
        settled = [
            i for i in chain
            if self.flow.pass_of[i] > 0 and not self.flow.varies[i] & self.write_columns()
        ]  # fmt: skip
        if not settled:
            return
        for index in settled:
            kind = "VI" if self.graph[index].is_mask else "V"
            self.lines.add(f"{kind} n{index}[{self.vectors_each}];")
        self.open_column_loop()
        inside = dict(names)
        for index in self.flow.topological(settled, inside):
            if index in self.flow.loads:
                text, name = self.load_vector(index, "j", pointers), f"m{index}"
                text = f"{text} != 0.0f" if self.graph[index].is_mask else text
            else:
                text, name = self.flow.expression(index, inside), f"m{index}"
            inside[index] = name
            kind = "VI" if self.graph[index].is_mask else "V"
            self.lines.add(f"const {kind} {name} = {text};")
        for index in settled:
            self.lines.add(f"n{index}[k] = m{index};")
            names[index] = f"n{index}[k]"
        self.lines.add("}")
        self.compute_inverses(stage, names)

    def compute_inverses(self, stage: int, names: dict[int, str]) -> None:
        """Inverses of divisors that stay the same down a column."""
        chain = self.flow.topological(self.flow.pass_inputs(stage), names)
        for divisor in self.flow.divisors(chain, names):
            if ~divisor in names or not names[divisor].endswith("[k]"):
                continue
            self.lines.add(f"V i{divisor}[{self.vectors_each}];")
            self.open_column_loop()
            self.lines.add(f"i{divisor}[k] = 1.0f / {names[divisor]};", "}")
            names[~divisor] = f"i{divisor}[k]"

    def open_column_loop(self) -> None:
        """Opens a loop over the vectors of the block."""
        self.lines.add("for (long j = begin, k = 0; j < end; j += W, ++k) {")
        self.lines.add("const int live = end - j < W ? (int)(end - j) : W; (void)live;")

    def write_pass(self, stage: int, names: dict[int, str], kept: dict[int, int]) -> None:
        made = self.flow.reductions(stage)
        self.compute_inverses(stage, names)
        for index in made:
            neutral = NEUTRAL_ELEMENT[self.graph[index].op]
            self.lines.add(f"V t{index}[{self.vectors_each}], s{index}[{self.vectors_each}];")
            self.lines.add(
                f"for (int k = 0; k < {self.vectors_each}; ++k)"
                f" t{index}[k] = s{index}[k] = K({neutral});"
            )
        length = self.layout.length
        self.lines.add(f"for (long g = 0; g < {length}; g += {COLUMN_BLOCK}) {{")
        self.lines.add(
            f"const long stop = g + {COLUMN_BLOCK} < {length} ? g + {COLUMN_BLOCK} : {length};"
        )
        self.lines.add("for (long row = g; row < stop; ++row) {")
        self.write_row(stage, dict(names), kept)
        self.lines.add("}")
        for index in made:
            op = self.graph[index].op
            joined = COMBINE_EXPRESSION[op].format(f"t{index}[k]", f"s{index}[k]")
            self.lines.add(
                f"for (int k = 0; k < {self.vectors_each}; ++k)"
                f" {{ t{index}[k] = {joined}; s{index}[k] = K({NEUTRAL_ELEMENT[op]}); }}"
            )
        self.lines.add("}")
        for index in made:
            names[index] = f"t{index}[k]"

    def write_row(self, stage: int, names: dict[int, str], kept: dict[int, int]) -> None:
        """One row of the block, a vector of columns at a time."""
        dims = self.indices(tuple(sorted(self.write_columns())), "row", "v")
        pointers: dict[int, str] = {}
        for load in self.layout.loads:
            inner = {d: v for d, v in dims.items() if load.strides[d]}
            pointers[load.node] = f"a{load.node}"
            if inner:
                pointers[load.node] = f"c{load.node}"
                text = " + ".join(f"{v} * {load.strides[d]}" for d, v in inner.items())
                self.lines.add(f"const float *c{load.node} = a{load.node} + {text};")
        down = " + ".join(
            f"v{d} * {math.prod(self.layout.sizes[d + 1 :])}" for d in sorted(self.write_columns())
        )
        buffered = [i for i, s in kept.items() if s < stage]
        new = [i for i, s in kept.items() if s == stage]
        wanted = [*self.flow.pass_inputs(stage), *new]
        have = names | {i: f"n{i}" for i in buffered}
        self.compute_loop_invariants(
            [i for i in wanted if i not in buffered], have, pointers, {self.last}
        )
        self.open_column_loop()
        chain = self.flow.topological(wanted, have)
        used = {a for i in chain for a in self.graph[i].args} | set(wanted)
        place = f"(row * {self.vectors_each} + k) * W"
        for index in buffered:
            if index in used:
                self.lines.add(f"const V n{index} = load(b{index} + {place}, W);")
        self.compute(wanted, have, pointers, "j")
        for index in new:
            self.lines.add(f"store(b{index} + {place}, {have[index]}, W);")
        for index in self.flow.reductions(stage):
            word = self.flow.operand(self.graph[index].args[0], have)
            joined = COMBINE_EXPRESSION[self.graph[index].op].format(f"s{index}[k]", word)
            self.lines.add(f"s{index}[k] = {joined};")
        for index in self.flow.full_outputs(stage):
            self.writes(index, f"{down} + j", f"o{index}", have)
        self.lines.add("}")

    def write_reduced_outputs(self, names: dict[int, str], pointers: dict[int, str]) -> None:
        """Outputs of the reduced shape, once a column."""
        settled = self.flow.reduced_outputs()
        if not settled:
            return
        self.compute_loop_invariants(settled, names, pointers, {self.last})
        self.open_column_loop()
        self.compute(settled, names, pointers, "j")
        for index in settled:
            self.writes(index, "j", f"o{index}", names)
        self.lines.add("}")
