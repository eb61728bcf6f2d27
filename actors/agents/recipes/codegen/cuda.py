"""The CUDA writer: what its kernels have in common, and elementwise ones.

A region becomes `__global__` functions and one C function that launches them on the stream it is
given and returns CUDA's error code.  Reductions are in `cuda_rows` and `cuda_columns`, pools in
`cuda_pool`.  Sizes are constants of the source.
"""

from __future__ import annotations

from actors.agents.recipes.codegen.passes import (
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

WARP_SIZE = 32  # turns whose numbers are summed before the sum is put aside

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


class CudaWriter:
    """What the CUDA loops have in common."""

    def __init__(self, graph: OperationGraph, region: Region, knobs: Knobs, name: str) -> None:
        self.graph, self.region, self.knobs, self.name = graph, region, knobs, name
        self.layout: LoopNest = plan_loops(graph, region)
        self.flow = PassPlan(graph, region, self.layout, knobs)
        self.lines = SourceLines(1)
        self.functions: list[str] = []
        self.launches: list[str] = []
        accesses = (*self.layout.loads, *self.layout.pool_reads)
        self.bases = tuple(dict.fromkeys(access.base for access in accesses))
        self.last = len(self.layout.sizes) - 1
        self.count = "int" if self.layout.volume < 1 << 29 else "long long"
        self.scratch = 0

    # -- frame ---------------------------------------------------------------------------------

    def parameters(self) -> str:
        reads = [f"const float *p{i}" for i in range(len(self.bases))]
        writes = [f"float *q{i}" for i in range(len(self.layout.stores))]
        return ", ".join([*reads, *writes, *(["float *work"] if self.scratch else [])])

    def arguments(self) -> str:
        reads = [f"p{i}" for i in range(len(self.bases))]
        writes = [f"q{i}" for i in range(len(self.layout.stores))]
        return ", ".join([*reads, *writes, *(["work"] if self.scratch else [])])

    def close_function(self, suffix: str, grid: str, threads: int) -> None:
        """Closes the lines so far as one `__global__` function, launched in this order."""
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

    def indices(self, dims: tuple[int, ...], variable: str, prefix: str) -> dict[int, str]:
        """Loop variables for dimensions that one variable counts through."""
        names: dict[int, str] = {}
        below = 1
        for place, d in enumerate(reversed(dims)):
            text = variable if below == 1 else f"{variable} / {below}"
            if place < len(dims) - 1:
                text = f"({text}) % {self.layout.sizes[d]}"
            names[d] = f"{prefix}{d}"
            self.lines.add(f"const {self.count} {prefix}{d} = {text};")
            below *= self.layout.sizes[d]
        return names

    def pointers(self, accesses: tuple[TensorAccess, ...], dims: dict[int, str]) -> None:
        """Where each tensor that is read is, for these loop variables."""
        for access in accesses:
            base = f"p{self.bases.index(access.base)}"
            self.lines.add(
                f"const float *a{access.node} = {base} + {address_expression(access, dims)};"
            )

    def results(self, dims: dict[int, str]) -> None:
        for place, access in enumerate(self.layout.stores):
            self.lines.add(
                f"float *o{access.node} = q{place} + {address_expression(access, dims)};"
            )

    # -- values --------------------------------------------------------------------------------

    def vector_width(self) -> int:
        """Floats in one load: what the last dimension and the outputs' rows divide by."""
        lanes = self.knobs.vector if self.knobs.vector in (1, 2, 4) else 4
        while lanes > 1 and self.layout.width % lanes:
            lanes //= 2
        return lanes

    def can_load_vector(self, access: TensorAccess, lanes: int) -> bool:
        """Whether it can be read `lanes` at a time at every step."""
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
        """A loaded number's name; between kernels a mask is kept as 1 and 0."""
        return f"({name} != 0.0f)" if self.graph[index].is_mask else name

    def assign(self, indices: list[int], names: dict[int, str]) -> None:
        """Lines that compute nodes whose operands have names."""
        for index in indices:
            kind = "bool" if self.graph[index].is_mask else "float"
            self.lines.add(f"const {kind} n{index} = {self.flow.expression(index, names)};")
            names[index] = f"n{index}"

    def spill_long_sums(self, made: list[int], turns: int, turn: str) -> None:
        """At the end of a turn: puts long sums aside now and then, which keeps rounding small."""
        for index in self.long_sums(made, turns):
            self.lines.add(
                f"if (({turn} & {WARP_SIZE - 1}) == {WARP_SIZE - 1})"
                f" {{ t{index} += s{index}; s{index} = 0.0f; }}"
            )

    def long_sums(self, made: list[int], turns: int) -> list[int]:
        return [i for i in made if self.graph[i].op == "sum" and turns > WARP_SIZE]

    def start_reductions(self, made: list[int], turns: int) -> None:
        """What a pass's reductions start from."""
        for index in made:
            self.lines.add(f"float s{index} = {NEUTRAL_ELEMENT[self.graph[index].op]};")
        for index in self.long_sums(made, turns):
            self.lines.add(f"float t{index} = 0.0f;")

    def finish_reductions(self, made: list[int], turns: int) -> None:
        for index in self.long_sums(made, turns):
            self.lines.add(f"s{index} += t{index};")

    def compute_loop_invariants(
        self, wanted: list[int], names: dict[int, str], dims: set[int]
    ) -> None:
        """Computes what the coming loop needs and what changes in none of its dimensions."""
        chain = self.flow.topological(wanted, names)
        for index in [i for i in chain if not self.flow.varies[i] & dims]:
            if index in self.flow.loads:
                self.lines.add(f"const float n{index} = *a{index};")
                names[index] = self.loaded(index, f"n{index}")
            else:
                self.assign([index], names)
        for divisor in self.flow.divisors(chain, names):
            if ~divisor not in names:
                names[~divisor] = f"i{divisor}"
                self.lines.add(f"const float i{divisor} = 1.0f / {names[divisor]};")


class CudaMaps(CudaWriter):
    """Elementwise: each thread loads for `unroll` places, then computes, then stores."""

    def write(self) -> Kernel:
        lanes, unroll, block = self.vector_width(), self.knobs.unroll, self.knobs.block
        items = self.layout.volume // lanes
        blocks = -(-items // (block * unroll))
        outputs = list(self.region.outputs)
        chain = self.flow.topological(outputs, {})
        loads = [self.flow.loads[i] for i in chain if i in self.flow.loads]
        self.lines.add(
            f"const {self.count} t = ({self.count})blockIdx.x * {block * unroll} + threadIdx.x;"
        )
        for load in loads:
            self.lines.add(f"float l{load.node}[{unroll}][{lanes}];")
        self.lines.add("#pragma unroll")
        self.lines.add(f"for (int i = 0; i < {unroll}; ++i) {{")
        self.write_place(lanes, block)
        self.lines.add(f"if (at < {self.layout.volume}) {{")
        dims = self.indices(self.layout.outer_dims, "r", "u")
        self.pointers(tuple(loads), dims)
        for load in loads:
            self.load_vector(load, "j", lanes, f"l{load.node}[i]")
        self.lines.add("}", "}")
        self.lines.add("#pragma unroll")
        self.lines.add(f"for (int i = 0; i < {unroll}; ++i) {{")
        self.write_place(lanes, block)
        self.lines.add(f"if (at < {self.layout.volume}) {{")
        for index in outputs:
            self.lines.add(f"float v{index}[{lanes}];")
        self.lines.add("#pragma unroll", f"for (int c = 0; c < {lanes}; ++c) {{")
        names = {n.node: self.loaded(n.node, f"l{n.node}[i][c]") for n in loads}
        self.assign([i for i in chain if i not in self.flow.loads], names)
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
        width = self.layout.width
        self.lines.add(
            f"const {self.count} at = (t + i * {block}) * {lanes},"
            f" r = at / {width}, j = at % {width};"
        )
