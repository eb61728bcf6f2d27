"""The CUDA writer: what its kernels have in common, elementwise kernels and pools.

A region becomes `__global__` functions and one C function that launches them on the stream it is
given and returns CUDA's error code.  Elementwise kernels and pools are here, reductions in
`cuda_rows` and `cuda_columns`.  Sizes are constants of the source.
"""

from __future__ import annotations

import math

from actors.agents.recipes.codegen.kernel_writer import (
    KernelWriter,
    RegionPool,
    SourceLines,
    pool_of,
)
from actors.agents.recipes.codegen.passes import NEUTRAL_ELEMENT, Kernel, address_expression
from actors.agents.recipes.ir.graph import OperationGraph
from actors.agents.recipes.schedule.fusion import Region
from actors.agents.recipes.schedule.knobs import Knobs
from actors.agents.recipes.schedule.loop_nests import TensorAccess, prologue

PARTIAL_SUM_TURNS = 32  # loop turns after which a sum is put aside: keeps rounding small

# Vector loads and stores, and reductions across a team of T threads (a warp, or a whole block).
TEAM_FUNCTIONS = """\
template <int N> FN void pull(const float *p, float *to) {
  if constexpr (N == 4) {
    const float4 v = *(const float4 *)p;
    to[0] = v.x; to[1] = v.y; to[2] = v.z; to[3] = v.w;
  } else if constexpr (N == 2) {
    const float2 v = *(const float2 *)p;
    to[0] = v.x; to[1] = v.y;
  } else {
    to[0] = *p;
  }
}
template <int N> FN void push(float *p, const float *from) {
  if constexpr (N == 4) *(float4 *)p = make_float4(from[0], from[1], from[2], from[3]);
  else if constexpr (N == 2) *(float2 *)p = make_float2(from[0], from[1]);
  else *p = from[0];
}
#define JOIN_sum(a, b) ((a) + (b))
#define JOIN_max(a, b) maximum(b, a)
#define JOIN_min(a, b) minimum(b, a)
#define TEAM(op)                                                               \\
  template <int T> FN float team_##op(float v) {                               \\
    for (int step = 16; step; step >>= 1)                                      \\
      v = JOIN_##op(v, __shfl_xor_sync(0xffffffffu, v, step));                 \\
    if constexpr (T > 32) {                                                    \\
      __shared__ float box[T / 32];                                            \\
      __syncthreads();                                                         \\
      if (threadIdx.x % 32 == 0) box[threadIdx.x / 32] = v;                    \\
      __syncthreads();                                                         \\
      v = box[0];                                                              \\
      for (int w = 1; w < T / 32; ++w) v = JOIN_##op(v, box[w]);               \\
    }                                                                          \\
    return v;                                                                  \\
  }
TEAM(sum)
TEAM(max)
TEAM(min)"""


class CudaWriter(KernelWriter):
    """What the CUDA loops have in common."""

    value_type = "float"

    def __init__(self, graph: OperationGraph, region: Region, knobs: Knobs, name: str) -> None:
        super().__init__(graph, region, knobs, name)
        # What a pool reads may be far larger than what its loops go through.
        most_read = max((math.prod(graph[base].sizes) for base in self.bases), default=0)
        is_small = self.loops.volume < 1 << 29 and most_read < 1 << 31
        self.index_type = "int" if is_small else "long long"
        self.functions: list[str] = []
        self.launches: list[str] = []
        self.scratch = 0

    # -- frame ---------------------------------------------------------------------------------

    def parameters(self) -> str:
        return ", ".join([*self.parameter_list(), *(["float *work"] if self.scratch else [])])

    def arguments(self) -> str:
        reads = [f"p{i}" for i in range(len(self.bases))]
        writes = [f"q{i}" for i in range(len(self.loops.stores))]
        return ", ".join([*reads, *writes, *(["work"] if self.scratch else [])])

    def close_function(self, suffix: str, grid: str, threads: int) -> None:
        """Makes the lines so far one `__global__` function, launched after those before it."""
        name = f"{self.name}_{suffix}"
        head = f"__global__ void __launch_bounds__({threads}) {name}({self.parameters()}) {{"
        self.functions.append("\n".join([head, *self.lines.text, "}"]))
        self.launches.append(f"  {name}<<<{grid}, {threads}, 0, (cudaStream_t)stream>>>"
                             f"({self.arguments()});")  # fmt: skip
        self.lines = SourceLines(1)

    def kernel(self) -> Kernel:
        head = f'extern "C" int {self.name}({self.parameters()}, void *stream) {{'
        body = [*self.functions, "\n".join([head, *self.launches,
                "  return (int)cudaGetLastError();", "}"])]  # fmt: skip
        return Kernel(
            name=self.name,
            text="\n\n".join(body),
            reads=self.bases,
            writes=self.region.outputs,
            scratch=self.scratch,
        )

    def remainder(self, text: str, size: int) -> str:
        return f"({text}) % {size}"

    def pointers(self, accesses: tuple[TensorAccess, ...], dims: dict[int, str]) -> None:
        """Declares where each tensor is read for these loop variables."""
        for access in accesses:
            self.input_pointer(access, dims)

    # -- values --------------------------------------------------------------------------------

    def vector_width(self) -> int:
        """How many floats one load has: at most the knob, and a divisor of the last dimension."""
        lanes = self.knobs.vector if self.knobs.vector in (1, 2, 4) else 4
        while lanes > 1 and self.loops.width % lanes:
            lanes //= 2
        return lanes

    def can_load_vector(self, access: TensorAccess, lanes: int) -> bool:
        """Whether `lanes` numbers can be read at once at every step."""
        return (
            access.strides[self.last] == 1
            and access.offset % lanes == 0
            and access.period % lanes == 0
            and all(step % lanes == 0 for step in access.strides[: self.last])
        )

    def load_vector(self, access: TensorAccess, at: str, lanes: int, into: str) -> None:
        """A load of `lanes` numbers at `at` along the last dimension."""
        where, step = f"a{access.node}", access.strides[self.last]
        at = f"({at}) % {access.period}" if access.period else at
        if self.can_load_vector(access, lanes):
            self.lines.add(f"pull<{lanes}>({where} + {at}, {into});")
        elif access.period:
            for c in range(lanes):
                self.lines.add(f"{into}[{c}] = {where}[({at} + {c}) % {access.period}];")
        else:
            for c in range(lanes):
                self.lines.add(f"{into}[{c}] = {where}[({at} + {c}) * {step}];")

    def loaded(self, index: int, name: str) -> str:
        """The text of a loaded number; between kernels a mask is stored as 1 and 0."""
        return f"({name} != 0.0f)" if self.graph[index].is_mask else name

    def assign(self, indices: list[int], names: dict[int, str]) -> None:
        """Declares nodes whose operands have names."""
        for index in indices:
            kind = "bool" if self.graph[index].is_mask else "float"
            self.lines.add(f"const {kind} n{index} = {self.passes.expression(index, names)};")
            names[index] = f"n{index}"

    def spill_long_sums(self, reductions: list[int], turns: int, turn: str) -> None:
        """At the end of a turn: puts long sums aside from time to time: keeps rounding small."""
        for index in self.long_sums(reductions, turns):
            self.lines.add(
                f"if (({turn} & {PARTIAL_SUM_TURNS - 1}) == {PARTIAL_SUM_TURNS - 1})"
                f" {{ t{index} += s{index}; s{index} = 0.0f; }}"
            )

    def long_sums(self, reductions: list[int], turns: int) -> list[int]:
        """The sums that are long enough to be put aside from time to time."""
        return [i for i in reductions if self.graph[i].op == "sum" and turns > PARTIAL_SUM_TURNS]

    def start_reductions(self, reductions: list[int], turns: int) -> None:
        """Declares the pass's reductions with their neutral elements."""
        for index in reductions:
            self.lines.add(f"float s{index} = {NEUTRAL_ELEMENT[self.graph[index].op]};")
        for index in self.long_sums(reductions, turns):
            self.lines.add(f"float t{index} = 0.0f;")

    def finish_reductions(self, reductions: list[int], turns: int) -> None:
        """Adds what was put aside."""
        for index in self.long_sums(reductions, turns):
            self.lines.add(f"s{index} += t{index};")

    def accumulate(self, stage: int, names: dict[int, str]) -> None:
        """Adds one number to each of the pass's reductions."""
        for index in self.passes.reductions(stage):
            operand = self.passes.operand(self.graph[index].args[0], names)
            self.lines.add(f"s{index} = JOIN_{self.graph[index].op}(s{index}, {operand});")

    def compute_loop_invariants(self, wanted: list[int], names: dict[int, str]) -> None:
        """Computes what the coming loop needs and what does not vary in the reduced dimensions."""
        chain = self.passes.topological(wanted, names)
        for index in [i for i in chain if not self.passes.varying_dims[i] & self.reduced_dims]:
            if index in self.passes.loads:
                self.lines.add(
                    f"const float n{index} = {self.load_invariant(self.passes.loads[index])};"
                )
                names[index] = self.loaded(index, f"n{index}")
            else:
                self.assign([index], names)
        self.declare_inverses(chain, names)

    def load_invariant(self, load: TensorAccess) -> str:
        """The load of a number that is the same along the reduced dimensions."""
        return f"*a{load.node}"

    def write_reduced_outputs(self, names: dict[int, str], condition: str) -> None:
        """Outputs of the reduced shape, written by the one thread for which `condition` holds."""
        outputs = self.passes.reduced_outputs()
        if outputs:
            self.compute_loop_invariants(outputs, names)
            self.lines.add(f"if ({condition}) {{")
            for index in outputs:
                self.lines.add(f"*o{index} = {self.passes.operand(index, names)};")
            self.lines.add("}")


class CudaMaps(CudaWriter):
    """Elementwise kernels: each thread loads for `unroll` places, then computes and stores."""

    def write(self) -> Kernel:
        lanes, unroll, block = self.vector_width(), self.knobs.unroll, self.knobs.block
        items = self.loops.volume // lanes
        blocks = -(-items // (block * unroll))
        outputs = list(self.region.outputs)
        chain = self.passes.topological(outputs, {})
        loads = [self.passes.loads[i] for i in chain if i in self.passes.loads]
        self.lines.add(
            f"const {self.index_type} t ="
            f" ({self.index_type})blockIdx.x * {block * unroll} + threadIdx.x;"
        )
        for load in loads:
            self.lines.add(f"float l{load.node}[{unroll}][{lanes}];")
        self.lines.add("#pragma unroll")
        self.lines.add(f"for (int i = 0; i < {unroll}; ++i) {{")
        self.write_place(lanes, block)
        self.lines.add(f"if (at < {self.loops.volume}) {{")
        dims = self.index_variables(self.loops.outer_dims, "r", "u")
        self.pointers(tuple(loads), dims)
        for load in loads:
            self.load_vector(load, "j", lanes, f"l{load.node}[i]")
        self.lines.add("}", "}")
        self.lines.add("#pragma unroll")
        self.lines.add(f"for (int i = 0; i < {unroll}; ++i) {{")
        self.write_place(lanes, block)
        self.lines.add(f"if (at < {self.loops.volume}) {{")
        for index in outputs:
            self.lines.add(f"float v{index}[{lanes}];")
        self.lines.add("#pragma unroll", f"for (int c = 0; c < {lanes}; ++c) {{")
        names = {n.node: self.loaded(n.node, f"l{n.node}[i][c]") for n in loads}
        self.assign([i for i in chain if i not in self.passes.loads], names)
        for index in outputs:
            self.lines.add(f"v{index}[c] = {names[index]};")
        self.lines.add("}")
        for index in outputs:
            place = self.region.outputs.index(index)
            self.lines.add(f"push<{lanes}>(q{place} + at, v{index});")
        self.lines.add("}", "}")
        self.close_function("map", str(blocks), block)
        return self.kernel()

    def write_place(self, lanes: int, block: int) -> None:
        width = self.loops.width
        self.lines.add(
            f"const {self.index_type} at = (t + i * {block}) * {lanes},"
            f" r = at / {width}, j = at % {width};"
        )


class CudaPools(CudaWriter):
    """Pooling: a thread for each result, with what comes before and after the pool."""

    def write(self) -> Kernel:
        pool = pool_of(self.graph, self.region)
        op = pool.operation
        block, down, along = self.knobs.block, self.last - 1, self.last
        self.lines.add(
            f"const {self.index_type} t = ({self.index_type})blockIdx.x * {block} + threadIdx.x;"
        )
        self.lines.add(f"if (t >= {self.loops.volume}) return;")
        dims = self.index_variables(tuple(range(self.last + 1)), "t", "u")
        planes = {d: v for d, v in dims.items() if d < down}
        self.lines.add(f"float best = {NEUTRAL_ELEMENT[op]};")
        self.open_window_loops(pool)
        names: dict[int, str] = {}
        for tap in self.loops.pool_reads:
            where = address_expression(tap, planes | {down: "h", along: "w"})
            self.lines.add(f"const float n{tap.node} = {self.memory(tap)}[{where}];")
            names[tap.node] = self.loaded(tap.node, f"n{tap.node}")
        self.assign(sorted(prologue(self.graph, self.region)), names)
        self.lines.add(f"best = JOIN_{op}(best, {names[pool.source]});", "}", "}")
        after: dict[int, str] = {pool.node: "best"}
        outputs = list(self.region.outputs)
        for index in self.passes.topological(outputs, after):
            if index in self.passes.loads:
                load = self.passes.loads[index]
                where = address_expression(load, dims)
                self.lines.add(f"const float m{index} = {self.memory(load)}[{where}];")
                after[index] = self.loaded(index, f"m{index}")
            else:
                self.assign([index], after)
        for place, index in enumerate(outputs):
            self.lines.add(f"q{place}[t] = {self.passes.operand(index, after)};")
        self.close_function("pool", str(-(-self.loops.volume // block)), block)
        return self.kernel()

    def open_window_loops(self, pool: RegionPool) -> None:
        """The loops over a result's window, which leave out places outside the input."""
        window = pool.geometry
        for side, d, k, size in (
            ("h", self.last - 1, 0, pool.height),
            ("w", self.last, 1, pool.width),
        ):
            self.lines.add("#pragma unroll")
            self.lines.add(f"for (int k{side} = 0; k{side} < {window.size[k]}; ++k{side}) {{")
            self.lines.add(
                f"const {self.index_type} {side} = u{d} * {window.stride[k]} - {window.pad[k]}"
                f" + k{side};"
            )
            self.lines.add(f"if ({side} < 0 || {side} >= {size}) continue;")
