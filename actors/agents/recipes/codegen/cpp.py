"""The C++ writer: a region becomes one function of float pointers, with OpenMP and vectors.

Elementwise kernels ("maps") and reductions along rows are here, reductions down columns in
`cpp_columns`, pools in `cpp_pool`.  Every size is a constant of the source: ModelNew calls the
kernel for the shapes that it was written for, and `plain_forward` for others.

Example: `softmax(x * 0.5)` over rows of x float32[64, 256] becomes, shortened,

    extern "C" void k0(const float *p0, float *q0) {
      #pragma omp parallel for schedule(static)
      for (long u = 0; u < 64; ++u) {               // a row, `units` of them
        const float *a0 = p0 + u0 * 256;            // node 0 is x
        ...                                         // pass 0: r3, the row's maximum
        ...                                         // pass 1: r6, the sum of exponentials
        for (long c = 0; c < 1; ++c) {              // pass 2: a piece of the row
          const auto step = [&](const long j, const int live, const int k) {
            const V n0 = load(a0 + j, live);
            const V n2 = n0 * K(0.5f);
            ...                                     // n7, from n2, r3 and r6
            store(o7 + j, n7, live);
          };
          long j = begin;
          for (; j + W <= end; j += W) step(j, W, 0);
          if (j < end) step(j, (int)(end - j), 0);  // the last vector: `live` lanes of W
        }
      }
    }
"""

from __future__ import annotations

import math

import msgspec

from actors.agents.recipes.codegen.kernel_writer import KernelWriter, stride_terms
from actors.agents.recipes.codegen.passes import COMBINE_EXPRESSION, NEUTRAL_ELEMENT, Kernel

MIN_PARALLEL_SIZE = 16384  # with fewer numbers, threads cost more than they gain
PARTIAL_SUM_FLOATS = 8192  # numbers after which a sum is put aside: keeps rounding small
MAX_STACK_FLOATS = 49152  # floats that a thread may have on its stack


class RowValues(msgspec.Struct, frozen=True, kw_only=True):
    """What one row of a pass works with, before its vector loop."""

    wanted: list[int]  # the nodes to compute
    names: dict[int, str]  # C++ text for each node that has a value
    pointers: dict[int, str]  # by loaded node
    offset: str  # of the row in a tensor of the full shape: "v1 * 24 + ", or ""


class CppWriter(KernelWriter):
    """What the C++ loops have in common."""

    value_type = "V"
    index_type = "long"

    # -- frame ---------------------------------------------------------------------------------

    def kernel(self) -> Kernel:
        head = f'extern "C" void {self.name}({", ".join(self.parameter_list())}) {{'
        tail = ["  settle();"] if any("stream(" in line for line in self.lines.text) else []
        text = "\n".join([head, *self.lines.text, *tail, "}"])
        return Kernel(name=self.name, text=text, reads=self.bases, writes=self.region.outputs)

    def parallel(self, count: int) -> None:
        """The OpenMP line before a loop over independent pieces of work."""
        if count < 2 or self.loops.volume < MIN_PARALLEL_SIZE or self.knobs.threads == 1:
            return
        team = f" num_threads({self.knobs.threads})" if self.knobs.threads else ""
        self.lines.add(f"#pragma omp parallel for schedule({self.knobs.schedule}){team}")

    def open_block_loop(self, variable: str, outer: str, units: int, block: int) -> None:
        """Open a loop over blocks [begin, end) of the last dimension, in each of `units` rows.

        `variable` counts the blocks, `outer` is the number of the row.
        """
        width = self.loops.width
        blocks = -(-width // block)
        self.lines.add(
            f"for (long {variable} = 0; {variable} < {units * blocks}; ++{variable}) {{",
            f"const long {outer} = {variable} / {blocks},"
            f" begin = ({variable} % {blocks}) * {block};",
            f"const long end = begin + {block} < {width} ? begin + {block} : {width};",
        )

    def remainder(self, text: str, size: int) -> str:
        return f"({text}) % {size}" if " / " in text else f"{text} % {size}"

    def index_variables(self, dims: tuple[int, ...], variable: str, prefix: str) -> dict[int, str]:
        return dict(sorted(super().index_variables(dims, variable, prefix).items()))

    def advance_pointers(self, dims: dict[int, str]) -> None:
        """Declare where each tensor is read and written for these loop variables."""
        for access in self.loops.loads:
            self.input_pointer(access, dims)
            if access.period:
                name, length = f"z{access.node}", access.period + self.knobs.vector
                self.lines.add(f"float {name}[{length}];  // repeats along the last dimension")
                self.lines.add(
                    f"for (int l = 0; l < {length}; ++l)"
                    f" {name}[l] = a{access.node}[l % {access.period}];"
                )
        self.output_pointers(dims)

    # -- values --------------------------------------------------------------------------------

    def load_vector(self, index: int, at: str, pointers: dict[int, str]) -> str:
        """A load inside the vector loop, at position `at` of the last dimension."""
        access = self.passes.loads[index]
        step = access.strides[self.last]
        where = pointers[index]
        if access.period:
            return f"load(z{index} + ({at}) % {access.period}, live)"
        if step == 0:
            return f"K(*({where}))"
        if step == 1:
            return f"load({where} + {at}, live)"
        return f"gather({where} + ({at}) * {step}, {step}, live)"

    def compute(
        self, wanted: list[int], names: dict[int, str], pointers: dict[int, str], at: str
    ) -> None:
        """Lines that compute these nodes as `n12`; their names are added."""
        for index in self.passes.topological(wanted, names):
            if index in self.passes.loads:
                text = self.loaded(index, self.load_vector(index, at, pointers))
            else:
                text = self.passes.expression(index, names)
            names[index] = self.declare(index, f"n{index}", text)

    def declare(self, index: int, name: str, text: str) -> str:
        """Declare a vector of a node's values, or of its truth values; return its name."""
        self.lines.add(f"const {self.vector_type(index)} {name} = {text};")
        return name

    def vector_type(self, index: int) -> str:
        return "VI" if self.graph[index].is_mask else "V"

    def loaded(self, index: int, text: str) -> str:
        """The text of a loaded vector; between kernels a mask is stored as 1 and 0."""
        return f"{text} != 0.0f" if self.graph[index].is_mask else text

    def compute_loop_invariants(
        self, wanted: list[int], names: dict[int, str], pointers: dict[int, str], dims: set[int]
    ) -> None:
        """Computes what the coming loop needs and what changes in none of its dimensions."""
        chain = self.passes.topological(wanted, names)
        invariants = [i for i in chain if not self.passes.varying_dims[i] & dims]
        self.compute(invariants, names, pointers, "0")
        self.declare_inverses(chain, names)

    def row_values(
        self,
        stage: int,
        names: dict[int, str],
        buffers: dict[int, int],
        dims: tuple[int, ...],
        variable: str,
    ) -> RowValues:
        """Declare what one row of the reduced dimensions `dims` needs before its vector loop."""
        variables = self.index_variables(dims, variable, "v")
        pointers: dict[int, str] = {}
        for load in self.loops.loads:
            terms = stride_terms(load, variables)
            pointers[load.node] = f"c{load.node}" if terms else f"a{load.node}"
            if terms:
                self.lines.add(
                    f"const {self.memory_type} *c{load.node} = a{load.node} + {' + '.join(terms)};"
                )
        steps = [f"v{d} * {math.prod(self.loops.sizes[d + 1 :])} + " for d in dims]
        filled = [i for i, s in buffers.items() if s < stage]
        wanted = [
            *self.passes.pass_inputs(stage),
            *(i for i, s in buffers.items() if s == stage),
        ]
        available = names | {i: f"n{i}" for i in filled}
        self.compute_loop_invariants(
            [i for i in wanted if i not in filled], available, pointers, {self.last}
        )
        return RowValues(wanted=wanted, names=available, pointers=pointers, offset="".join(steps))

    def compute_row(
        self, stage: int, row: RowValues, buffers: dict[int, int], place: str, live: str
    ) -> None:
        """Inside the vector loop: reads the buffers of earlier passes at `place`, computes what
        the pass wants, and fills the buffers of this pass.
        """
        chain = self.passes.topological(row.wanted, row.names)
        used = {a for i in chain for a in self.graph[i].args} | set(row.wanted)
        for index, filled_in in buffers.items():
            if filled_in < stage and index in used:
                self.lines.add(f"const V n{index} = load(b{index} + {place}, {live});")
        self.compute(row.wanted, row.names, row.pointers, "j")
        for index, filled_in in buffers.items():
            if filled_in == stage:
                self.lines.add(f"store(b{index} + {place}, {row.names[index]}, {live});")

    def write_output(self, index: int, at: str, where: str, names: dict[int, str]) -> None:
        """The store of an output over the whole domain."""
        access = next(a for a in self.loops.stores if a.node == index)
        lanes = self.knobs.vector
        is_aligned = all(s % lanes == 0 for s in access.strides[: self.last])
        can_stream = self.knobs.store == "stream" and is_aligned and access.strides[self.last] == 1
        text = self.passes.operand(index, names)
        if self.graph[index].is_mask:  # between kernels a mask is stored as 1 and 0
            text = f"{text} ? K(1.0f) : K(0.0f)"
        function = "stream" if can_stream else "store"
        self.lines.add(f"{function}({where} + {at}, {text}, live);")

    def write_vector_loop(self, start: str, end: str, count: int) -> None:
        """Calls `step` along [start, end): `count` whole vectors at a time, then the rest."""
        lanes = self.knobs.vector
        self.lines.add(f"long j = {start};")
        if count > 1:
            calls = " ".join(f"step(j + {k * lanes}, W, {k});" for k in range(count))
            self.lines.add(
                f"for (; j + {count * lanes} <= {end}; j += {count * lanes}) {{ {calls} }}"
            )
        self.lines.add(f"for (; j + W <= {end}; j += W) step(j, W, 0);")
        self.lines.add(f"if (j < {end}) step(j, (int)({end} - j), 0);")


class CppMaps(CppWriter):
    """Elementwise kernels: blocks of the last dimension, in any order."""

    def write(self) -> Kernel:
        width = self.loops.width
        block = min(max(self.knobs.block, self.knobs.vector), width)
        self.parallel(self.loops.units * -(-width // block))
        self.open_block_loop("u", "r", self.loops.units, block)
        self.advance_pointers(self.index_variables(self.loops.outer_dims, "r", "u"))
        pointers = {load.node: f"a{load.node}" for load in self.loops.loads}
        names: dict[int, str] = {}
        outputs = list(self.region.outputs)
        self.compute_loop_invariants(outputs, names, pointers, {self.last})
        self.lines.add("const auto step = [&](const long j, const int live, int) "
                       "__attribute__((always_inline)) {")  # fmt: skip
        self.compute(outputs, names, pointers, "j")
        for index in outputs:
            self.write_output(index, "j", f"o{index}", names)
        self.lines.add("};")
        self.write_vector_loop("begin", "end", self.knobs.unroll)
        self.lines.add("}")
        return self.kernel()


class CppRows(CppWriter):
    """Reductions along the last dimension: the passes over a row follow while it is in cache.

    Rows are spread over threads.  If rows are few and long, the pieces of a row are (`spread`).
    """

    def write(self) -> Kernel:
        spread = self.loops.units < 8 and self.loops.length >= 2 * PARTIAL_SUM_FLOATS
        buffers = (
            {}
            if spread
            else self.passes.values_kept_between_passes(
                max(0, MAX_STACK_FLOATS // self.loops.length)
            )
        )
        if not spread:
            self.parallel(self.loops.units)
        self.lines.add(f"for (long u = 0; u < {self.loops.units}; ++u) {{")
        self.advance_pointers(self.index_variables(self.loops.outer_dims, "u", "u"))
        for index in buffers:
            self.lines.add(f"alignas(64) float b{index}[{self.loops.length + 16}];")
        names: dict[int, str] = {}
        pointers = {load.node: f"a{load.node}" for load in self.loops.loads}
        for stage in self.passes.stages():
            wanted = self.passes.pass_inputs(stage)
            self.compute_loop_invariants(wanted, names, pointers, self.reduced_dims)
            self.write_pass(stage, names, buffers, spread)
        outputs = self.passes.reduced_outputs()
        self.compute_loop_invariants(outputs, names, pointers, self.reduced_dims)
        for index in outputs:
            text = f"{self.passes.operand(index, names)}[0]"
            self.lines.add(
                f"*o{index} = {f'{text} ? 1 : 0' if self.graph[index].is_mask else text};"
            )
        self.lines.add("}")
        return self.kernel()

    def write_pass(
        self, stage: int, names: dict[int, str], buffers: dict[int, int], spread: bool
    ) -> None:
        """One pass over a row, in pieces; each piece's result is added to the row's."""
        reductions = self.passes.reductions(stage)
        width = self.loops.width
        piece = PARTIAL_SUM_FLOATS if spread or width > PARTIAL_SUM_FLOATS else width
        units = math.prod(self.loops.sizes[d] for d in self.loops.inner_dims)
        count = units * -(-width // piece)
        op = {index: self.graph[index].op for index in reductions}
        if spread:
            for index in reductions:
                self.lines.add(f"float *w{index} = new float[{count}];")
            self.parallel(count)
        else:
            for index in reductions:
                self.lines.add(f"V t{index} = K({NEUTRAL_ELEMENT[op[index]]});")
        self.open_block_loop("c", "g", units, piece)
        self.write_piece(stage, dict(names), buffers)
        for index in reductions:
            parts = f"s{index}[0]"
            for k in range(1, self.knobs.unroll):
                parts = COMBINE_EXPRESSION[op[index]].format(parts, f"s{index}[{k}]")
            if spread:
                self.lines.add(f"w{index}[c] = across_{op[index]}({parts});")
            else:
                joined = COMBINE_EXPRESSION[op[index]].format(f"t{index}", f"({parts})")
                self.lines.add(f"t{index} = {joined};")
        self.lines.add("}")
        for index in reductions:
            if spread:
                self.combine_partials(index, op[index], count)
            else:
                self.lines.add(f"const V r{index} = K(across_{op[index]}(t{index}));")
            names[index] = f"r{index}"

    def combine_partials(self, index: int, op: str, count: int) -> None:
        """Combines the pieces' results; sums in double, since the pieces can be many."""
        if op == "sum":
            self.lines.add(f"double d{index} = 0;")
            self.lines.add(f"for (long c = 0; c < {count}; ++c) d{index} += w{index}[c];")
        else:
            self.lines.add(f"V d{index} = K(w{index}[0]);")
            joined = COMBINE_EXPRESSION[op].format(f"d{index}", f"K(w{index}[c])")
            self.lines.add(f"for (long c = 1; c < {count}; ++c) d{index} = {joined};")
        last = f"(float)d{index}" if op == "sum" else f"d{index}[0]"
        self.lines.add(f"const V r{index} = K({last});", f"delete[] w{index};")

    def write_piece(self, stage: int, names: dict[int, str], buffers: dict[int, int]) -> None:
        """The vector loop over one piece of a row, in the scope of that piece."""
        row = self.row_values(stage, names, buffers, self.loops.inner_dims, "g")
        reductions = self.passes.reductions(stage)
        for index in reductions:
            neutral = NEUTRAL_ELEMENT[self.graph[index].op]
            self.lines.add(f"V s{index}[{self.knobs.unroll}];")
            self.lines.add(
                f"for (int k = 0; k < {self.knobs.unroll}; ++k) s{index}[k] = K({neutral});"
            )
        self.lines.add("const auto step = [&](const long j, const int live, const int k) "
                       "__attribute__((always_inline)) {")  # fmt: skip
        self.compute_row(stage, row, buffers, f"{row.offset}j", "live")
        for index in reductions:
            op = self.graph[index].op
            operand = self.passes.operand(self.graph[index].args[0], row.names)
            live = f"keep({operand}, live, {NEUTRAL_ELEMENT[op]})"
            self.lines.add(f"s{index}[k] = {COMBINE_EXPRESSION[op].format(f's{index}[k]', live)};")
        for index in self.passes.full_outputs(stage):
            self.write_output(index, f"{row.offset}j", f"o{index}", row.names)
        self.lines.add("(void)k;", "};")
        self.write_vector_loop("begin", "end", self.knobs.unroll)
