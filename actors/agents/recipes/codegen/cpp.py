"""The C++ writer: a region becomes one function of float pointers, with OpenMP and vectors.

Maps and reductions along rows are here, reductions down columns in `cpp_columns`, pools in
`cpp_pool`.  Every size is a constant of the source: ModelNew calls the kernel for the shapes that
it was written for, and takes PyTorch's way for others.
"""

from __future__ import annotations

import math

from actors.agents.recipes.codegen.passes import (
    COMBINE_EXPRESSION,
    NEUTRAL_ELEMENT,
    Kernel,
    PassPlan,
    address_expression,
)
from actors.agents.recipes.codegen.source_lines import SourceLines
from actors.agents.recipes.ir.graph import OperationGraph
from actors.agents.recipes.schedule.fusion import Region
from actors.agents.recipes.schedule.knobs import Knobs
from actors.agents.recipes.schedule.loop_nests import LoopNest, TensorAccess, plan_loops

MIN_PARALLEL_SIZE = 16384  # numbers below which threads cost more than they give
CHUNK_FLOATS = 8192  # numbers that are summed before the sum is put aside: keeps rounding small
MAX_STACK_BYTES = 49152  # floats that a thread may keep on its stack


class CppWriter:
    """What the C++ loops have in common."""

    def __init__(self, graph: OperationGraph, region: Region, knobs: Knobs, name: str) -> None:
        self.graph, self.region, self.knobs, self.name = graph, region, knobs, name
        self.layout: LoopNest = plan_loops(graph, region)
        self.flow = PassPlan(graph, region, self.layout, knobs)
        self.lines = SourceLines(1)
        accesses = (*self.layout.loads, *self.layout.pool_reads)
        self.bases = tuple(dict.fromkeys(access.base for access in accesses))
        self.last = len(self.layout.sizes) - 1

    # -- frame ---------------------------------------------------------------------------------

    def kernel(self) -> Kernel:
        reads = ", ".join(f"const float *p{i}" for i in range(len(self.bases)))
        writes = ", ".join(f"float *q{i}" for i in range(len(self.layout.stores)))
        head = f'extern "C" void {self.name}({", ".join(filter(None, (reads, writes)))}) {{'
        tail = ["  settle();"] if any("stream(" in line for line in self.lines.text) else []
        text = "\n".join([head, *self.lines.text, *tail, "}"])
        return Kernel(name=self.name, text=text, reads=self.bases, writes=self.region.outputs)

    def parallel(self, count: int) -> None:
        """The OpenMP line before a loop over independent pieces of work."""
        if count < 2 or self.layout.volume < MIN_PARALLEL_SIZE or self.knobs.threads == 1:
            return
        team = f" num_threads({self.knobs.threads})" if self.knobs.threads else ""
        self.lines.add(f"#pragma omp parallel for schedule({self.knobs.schedule}){team}")

    def indices(self, dims: tuple[int, ...], variable: str, prefix: str) -> dict[int, str]:
        """Loop variables for dimensions that one variable counts through."""
        names: dict[int, str] = {}
        below = 1
        for place, d in enumerate(reversed(dims)):
            size = self.layout.sizes[d]
            text = variable if below == 1 else f"{variable} / {below}"
            if place < len(dims) - 1:
                text = f"({text}) % {size}" if below != 1 else f"{text} % {size}"
            names[d] = f"{prefix}{d}"
            self.lines.add(f"const long {prefix}{d} = {text};")
            below *= size
        return dict(sorted(names.items()))

    def pointer(self, access: TensorAccess) -> str:
        return f"p{self.bases.index(access.base)}"

    def advance_pointers(self, dims: dict[int, str]) -> None:
        """Pointers to where each tensor is for these loop variables: a… for loads, o… stores."""
        for access in self.layout.loads:
            where = f"{self.pointer(access)} + {address_expression(access, dims)}"
            self.lines.add(f"const float *a{access.node} = {where};")
            if access.period:
                name, length = f"z{access.node}", access.period + self.knobs.vector
                self.lines.add(f"float {name}[{length}];  // repeats along the last dimension")
                self.lines.add(
                    f"for (int l = 0; l < {length}; ++l)"
                    f" {name}[l] = a{access.node}[l % {access.period}];"
                )
        for place, access in enumerate(self.layout.stores):
            self.lines.add(
                f"float *o{access.node} = q{place} + {address_expression(access, dims)};"
            )

    # -- values --------------------------------------------------------------------------------

    def load_vector(self, index: int, at: str, pointers: dict[int, str]) -> str:
        """A load inside the vector loop, at position `at` of the last dimension."""
        access = self.flow.loads[index]
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
        """Lines that compute these nodes; their names are added."""
        for index in self.flow.topological(wanted, names):
            kind = "VI" if self.graph[index].is_mask else "V"
            if index in self.flow.loads:
                text = self.load_vector(index, at, pointers)
                text = f"{text} != 0.0f" if self.graph[index].is_mask else text
            else:
                text = self.flow.expression(index, names)
            names[index] = f"n{index}"
            self.lines.add(f"const {kind} n{index} = {text};")

    def compute_loop_invariants(
        self, wanted: list[int], names: dict[int, str], pointers: dict[int, str], dims: set[int]
    ) -> None:
        """Computes what the coming loop needs and what changes in none of its dimensions."""
        chain = self.flow.topological(wanted, names)
        still = [i for i in chain if not self.flow.varies[i] & dims]
        self.compute(still, names, pointers, "0")
        for divisor in self.flow.divisors(chain, names):
            if ~divisor not in names and not names[divisor].endswith("[k]"):
                names[~divisor] = f"i{divisor}"
                self.lines.add(f"const V i{divisor} = 1.0f / {names[divisor]};")

    def writes(self, index: int, at: str, where: str, names: dict[int, str]) -> None:
        """The store of an output over the whole domain."""
        access = next(a for a in self.layout.stores if a.node == index)
        lanes = self.knobs.vector
        aligned = all(s % lanes == 0 for s in access.strides[: self.last])
        past = self.knobs.store == "stream" and aligned and access.strides[self.last] == 1
        word = self.flow.operand(index, names)
        if self.graph[index].is_mask:  # between kernels a mask is kept as 1 and 0
            word = f"{word} ? K(1.0f) : K(0.0f)"
        function = "stream" if past else "store"
        self.lines.add(f"{function}({where} + {at}, {word}, live);")

    def vectors(self, start: str, end: str, count: int) -> None:
        """Calls `step` along [start, end) in whole vectors, `count` under way, then the rest."""
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
    """Elementwise: pieces of `block` numbers along the last dimension, in any order."""

    def write(self) -> Kernel:
        width = self.layout.width
        block = min(max(self.knobs.block, self.knobs.vector), width)
        pieces = -(-width // block)
        count = self.layout.units * pieces
        self.parallel(count)
        self.lines.add(f"for (long u = 0; u < {count}; ++u) {{")
        self.lines.add(f"const long r = u / {pieces}, begin = (u % {pieces}) * {block};")
        self.lines.add(f"const long end = begin + {block} < {width} ? begin + {block} : {width};")
        dims = self.indices(self.layout.outer_dims, "r", "u")
        self.advance_pointers(dims)
        pointers = {load.node: f"a{load.node}" for load in self.layout.loads}
        names: dict[int, str] = {}
        outputs = list(self.region.outputs)
        self.compute_loop_invariants(outputs, names, pointers, {self.last})
        self.lines.add("const auto step = [&](const long j, const int live, int) "
                       "__attribute__((always_inline)) {")  # fmt: skip
        self.compute(outputs, names, pointers, "j")
        for index in outputs:
            self.writes(index, "j", f"o{index}", names)
        self.lines.add("};")
        self.vectors("begin", "end", self.knobs.unroll)
        self.lines.add("}")
        return self.kernel()


class CppRows(CppWriter):
    """Reductions along the last dimension: a few passes over each row while it is in cache."""

    def write(self) -> Kernel:
        spread = self.layout.units < 8 and self.layout.length >= 2 * CHUNK_FLOATS
        kept = (
            {}
            if spread
            else self.flow.values_kept_between_passes(max(0, MAX_STACK_BYTES // self.layout.length))
        )
        if not spread:
            self.parallel(self.layout.units)
        self.lines.add(f"for (long u = 0; u < {self.layout.units}; ++u) {{")
        dims = self.indices(self.layout.outer_dims, "u", "u")
        self.advance_pointers(dims)
        for index in kept:
            self.lines.add(f"alignas(64) float b{index}[{self.layout.length + 16}];")
        names: dict[int, str] = {}
        pointers = {load.node: f"a{load.node}" for load in self.layout.loads}
        reduced = {d for d, flag in enumerate(self.layout.reduced) if flag}
        for stage in self.flow.passes():
            wanted = self.flow.pass_inputs(stage)
            self.compute_loop_invariants(wanted, names, pointers, reduced)
            self.write_pass(stage, names, kept, spread)
        settled = self.flow.reduced_outputs()
        self.compute_loop_invariants(settled, names, pointers, reduced)
        for index in settled:
            word = f"{self.flow.operand(index, names)}[0]"
            self.lines.add(
                f"*o{index} = {f'{word} ? 1 : 0' if self.graph[index].is_mask else word};"
            )
        self.lines.add("}")
        return self.kernel()

    def write_pass(
        self, stage: int, names: dict[int, str], kept: dict[int, int], spread: bool
    ) -> None:
        made = self.flow.reductions(stage)
        piece = CHUNK_FLOATS if spread or self.layout.width > CHUNK_FLOATS else self.layout.width
        pieces = -(-self.layout.width // piece)
        count = math.prod(self.layout.sizes[d] for d in self.layout.inner_dims) * pieces
        op = {index: self.graph[index].op for index in made}
        if spread:
            for index in made:
                self.lines.add(f"float *w{index} = new float[{count}];")
            self.parallel(count)
        else:
            for index in made:
                self.lines.add(f"V t{index} = K({NEUTRAL_ELEMENT[op[index]]});")
        self.lines.add(f"for (long c = 0; c < {count}; ++c) {{")
        self.lines.add(f"const long g = c / {pieces}, begin = (c % {pieces}) * {piece};")
        self.lines.add(
            f"const long end = begin + {piece} < {self.layout.width} ? begin + {piece}"
            f" : {self.layout.width};"
        )
        self.write_piece(stage, dict(names), kept)
        for index in made:
            parts = f"s{index}[0]"
            for k in range(1, self.knobs.unroll):
                parts = COMBINE_EXPRESSION[op[index]].format(parts, f"s{index}[{k}]")
            if spread:
                self.lines.add(f"w{index}[c] = across_{op[index]}({parts});")
            else:
                joined = COMBINE_EXPRESSION[op[index]].format(f"t{index}", f"({parts})")
                self.lines.add(f"t{index} = {joined};")
        self.lines.add("}")
        for index in made:
            if spread:
                self.combine_partials(index, op[index], count)
            else:
                self.lines.add(f"const V r{index} = K(across_{op[index]}(t{index}));")
            names[index] = f"r{index}"

    def combine_partials(self, index: int, op: str, count: int) -> None:
        """Puts the pieces' results together; sums in double, since there can be many."""
        if op == "sum":
            self.lines.add(f"double d{index} = 0;")
            self.lines.add(f"for (long c = 0; c < {count}; ++c) d{index} += w{index}[c];")
        else:
            self.lines.add(f"V d{index} = K(w{index}[0]);")
            joined = COMBINE_EXPRESSION[op].format(f"d{index}", f"K(w{index}[c])")
            self.lines.add(f"for (long c = 1; c < {count}; ++c) d{index} = {joined};")
        last = f"(float)d{index}" if op == "sum" else f"d{index}[0]"
        self.lines.add(f"const V r{index} = K({last});", f"delete[] w{index};")

    def write_piece(self, stage: int, names: dict[int, str], kept: dict[int, int]) -> None:
        """The vector loop over one piece of a row, in the scope of that piece."""
        dims = self.indices(self.layout.inner_dims, "g", "v")
        pointers: dict[int, str] = {}
        for load in self.layout.loads:
            inner = {d: v for d, v in dims.items() if load.strides[d]}
            pointers[load.node] = f"a{load.node}"
            if inner:
                pointers[load.node] = f"c{load.node}"
                text = " + ".join(f"{v} * {load.strides[d]}" for d, v in inner.items())
                self.lines.add(f"const float *c{load.node} = a{load.node} + {text};")
        row = " + ".join(
            f"v{d} * {math.prod(self.layout.sizes[d + 1 :])}" for d in self.layout.inner_dims
        )
        base = f"{row} + " if row else ""
        buffered = [i for i, s in kept.items() if s < stage]
        have = dict(names) | {i: f"n{i}" for i in buffered}
        wanted = self.flow.pass_inputs(stage)
        new = [i for i, s in kept.items() if s == stage]
        wanted = [*wanted, *new]
        self.compute_loop_invariants(
            [i for i in wanted if i not in buffered], have, pointers, {self.last}
        )
        chain = self.flow.topological(wanted, have)
        made = self.flow.reductions(stage)
        for index in made:
            neutral = NEUTRAL_ELEMENT[self.graph[index].op]
            self.lines.add(f"V s{index}[{self.knobs.unroll}];")
            self.lines.add(
                f"for (int k = 0; k < {self.knobs.unroll}; ++k) s{index}[k] = K({neutral});"
            )
        self.lines.add("const auto step = [&](const long j, const int live, const int k) "
                       "__attribute__((always_inline)) {")  # fmt: skip
        used = {a for i in chain for a in self.graph[i].args} | set(wanted)
        for index in buffered:
            if index in used:
                self.lines.add(f"const V n{index} = load(b{index} + {base}j, live);")
        self.compute(wanted, have, pointers, "j")
        for index in new:
            self.lines.add(f"store(b{index} + {base}j, n{index}, live);")
        for index in made:
            op = self.graph[index].op
            word = (
                f"keep({self.flow.operand(self.graph[index].args[0], have)}, live, "
                f"{NEUTRAL_ELEMENT[op]})"
            )
            self.lines.add(f"s{index}[k] = {COMBINE_EXPRESSION[op].format(f's{index}[k]', word)};")
        for index in self.flow.full_outputs(stage):
            self.writes(index, f"{base}j", f"o{index}", have)
        self.lines.add("(void)k;")
        self.lines.add("};")
        self.vectors("begin", "end", self.knobs.unroll)
