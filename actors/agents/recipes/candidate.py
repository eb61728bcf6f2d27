"""The candidate's whole Python file: kernels, how they are built, and ModelNew.

ModelNew keeps the task's constructor (so parameters have the same names) and its forward under the
name `plain_forward`; the new forward calls the kernels where inputs and parameters are what they
were written for, and `plain_forward` where they are not.
"""

from __future__ import annotations

import ast
import math

from actors.agents.recipes.flow import Flow, Kernel
from actors.agents.recipes.fusion import Region, Schedule
from actors.agents.recipes.graph import contiguous
from actors.agents.recipes.knobs import Knobs, header
from actors.agents.recipes.layout import lay_out
from actors.agents.recipes.reading import Program
from actors.agents.recipes.template import (
    CHECKED,
    CPP_BUILD,
    CUDA_BUILD,
    FITS,
    class_of,
    future,
    kept_module,
    refuse_clashes,
)


class Assembly:
    """Builds the file of one candidate."""

    def __init__(
        self,
        program: Program,
        schedule: Schedule,
        kernels: dict[Region, Kernel],
        knobs: Knobs,
        backend: str,
    ) -> None:
        self.program, self.schedule, self.kernels = program, schedule, kernels
        self.knobs, self.backend = knobs, backend
        self.graph = program.graph
        self.device = "cuda" if backend == "cuda" else "cpu"
        self.names: dict[int, str] = {}
        self.body: list[str] = []
        self.ready: dict[int, str] = {}  # nodes whose memory a kernel may read

    def text(self, prelude: str) -> str:
        """The whole file."""
        source = "\n\n".join(kernel.text for kernel in self.kernels.values())
        parts = [
            header(self.knobs),
            '"""ModelNew, written by the rule book `recipes` (rules, not a language model).',
            "",
            self.summary() + '"""',
            *future(self.program.source),
            "import ctypes",
            "import hashlib",
            "import math",
            "import platform",
            "",
            "import torch",
            "from torch import nn",
            "from torch.utils.cpp_extension import load_inline",
            kept_module(self.program.source),
            "",
            'SOURCE = r"""',
            prelude,
            "",
            source,
            '"""',
            "",
            (CUDA_BUILD if self.backend == "cuda" else CPP_BUILD).rstrip(),
            *self.signatures(),
            FITS.format(device=self.device).rstrip(),
        ]
        if self.backend == "cuda":
            parts.append(CHECKED.rstrip())
        parts += ["", "", self.model(), ""]
        return "\n".join(parts)

    def summary(self) -> str:
        count = len(self.kernels)
        said = f"{count} kernel{'s' if count != 1 else ''} in place of PyTorch's operations"
        if self.program.kept:
            said += f"; left to PyTorch: {', '.join(self.program.kept)}"
        return said + ".\nForward only: no gradients flow through the kernels.\n"

    def signatures(self) -> list[str]:
        lines = []
        for kernel in self.kernels.values():
            count = len(kernel.reads) + len(kernel.writes)
            if self.backend == "cuda":
                count += 1 + bool(kernel.scratch)
            lines.append(f"library.{kernel.name}.argtypes = [ctypes.c_void_p] * {count}")
            kind = "ctypes.c_int" if self.backend == "cuda" else "None"
            lines.append(f"library.{kernel.name}.restype = {kind}")
        return lines

    # -- ModelNew ------------------------------------------------------------------------------

    def model(self) -> str:
        forward, made = class_of(self.program)
        refuse_clashes(self.program, forward)
        if forward.args.posonlyargs or forward.args.args:
            (forward.args.posonlyargs or forward.args.args)[0].arg = "self"
        spec = forward.args
        taken = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs, spec.vararg, spec.kwarg]
        given = [arg.arg for arg in taken if arg is not None]
        guard = ["self.as_written"] if made.told else []
        guard += [f"not {text}.training" for text in self.program.evaluated]
        guard += self.program.guards
        held = self.hold(given)
        guard += self.guards()
        self.steps()
        lines = [
            made.text,
            "",
            f"    def forward({ast.unparse(forward.args)}):",
            *(f"        {line}" for line in held),
            "        if not (",
            "            " + "\n            and ".join(guard or ["True"]),
            "        ):",
            f"            return self.plain_forward({', '.join(self.program.given)})",
            *(f"        {line}" for line in self.body),
            f"        return {self.returned(self.program.output)}",
        ]
        return "\n".join(lines)

    def hold(self, given: list[str]) -> list[str]:
        """Parameters and buffers under short names: a module looks each up anew."""
        lines = []
        for index in sorted(self.graph.ancestors(self.program.results)):
            node = self.graph[index]
            if node.op == "leaf":
                self.names[index] = node.text if node.text in given else f"p{index}"
                if node.text not in given:
                    lines.append(f"p{index} = {node.text}")
        return lines

    def guards(self) -> list[str]:
        checks = []
        live = self.graph.ancestors(self.program.results)
        for index in sorted(live):
            node = self.graph[index]
            if node.op == "leaf":
                checks.append(f"fits({self.names[index]}, {node.shape})")
        if self.backend == "cuda" and checks:
            first = next(self.names[i] for i in sorted(live) if self.graph[i].op == "leaf")
            checks.append(f"{first}.get_device() == torch.cuda.current_device()")
        return checks

    def steps(self) -> None:
        last: dict[int, int] = {}
        for place, step in enumerate(self.schedule.steps):
            for index in self.needs(step):
                last[index] = place
        results = {self.base(i) for i in self.program.results} | set(self.program.results)
        self.last, self.results = last, results
        for place, step in enumerate(self.schedule.steps):
            if isinstance(step, Region):
                self.launch(step, place)
            else:
                self.torch(step)
            gone = sorted(
                {
                    self.names[i]
                    for i, end in last.items()
                    if end == place and i not in results and i in self.names
                    and self.graph[i].op != "leaf"
                }
            )  # fmt: skip
            kept = {self.names[i] for i in self.names if last.get(i, -1) > place or i in results}
            gone = [name for name in gone if name not in kept and name.startswith("t")]
            if gone and place < len(self.schedule.steps) - 1:
                self.body.append(f"del {', '.join(gone)}")

    def base(self, index: int) -> int:
        node = self.graph[index]
        return node.args[0] if node.op == "view" else index

    def needs(self, step: Region | int) -> list[int]:
        if isinstance(step, Region):
            return list(self.kernels[step].reads)
        return [self.base(step)] if self.graph[step].op == "view" else [
            j for arg in self.graph[step].args for j in (arg, self.base(arg))]  # fmt: skip

    def name(self, index: int) -> str:
        node = self.graph[index]
        if node.op == "leaf" and index in self.ready:
            return self.ready[index]
        return self.names[index]

    def torch(self, index: int) -> None:
        """A node that PyTorch computes, or a view of one that something in Python needs."""
        node = self.graph[index]
        if node.op == "view":
            users = {a for i in self.graph.ancestors(self.program.results)
                     if self.graph[i].op == "torch" for a in self.graph[i].args}  # fmt: skip
            if index not in users and index not in self.program.results:
                return
            text = self.viewed(index)
        else:
            text = node.text.strip().format(*(self.name(arg) for arg in node.args))
        self.names[index] = f"t{index}"
        self.body.append(f"t{index} = {text}")

    def viewed(self, index: int) -> str:
        node = self.graph[index]
        base = self.name(node.args[0])
        plain = node.strides == contiguous(node.sizes) and node.offset == 0
        if plain and math.prod(self.graph[node.args[0]].sizes) == math.prod(node.sizes):
            return f"{base}.reshape({node.shape})"
        return f"{base}.contiguous().as_strided({node.shape}, {node.strides}, {node.offset})"

    def launch(self, region: Region, place: int) -> None:
        kernel = self.kernels[region]
        for index in kernel.reads:
            self.prepare(index)
        reused = self.reusable(region, place)
        for index in kernel.writes:
            self.names[index] = f"t{index}"
            if index in reused:
                self.body.append(f"t{index} = {self.ready[reused[index]]}")
                continue
            shape = self.graph[index].shape
            self.body.append(f"t{index} = {self.ready[kernel.reads[0]]}.new_empty({shape})")
        if kernel.scratch:
            self.body.append(f"scratch = {self.ready[kernel.reads[0]]}.new_empty({kernel.scratch})")
        words = [f"{self.ready[i]}.data_ptr()" for i in kernel.reads]
        words += [f"{self.names[i]}.data_ptr()" for i in kernel.writes]
        for index in kernel.writes:
            self.ready[index] = self.names[index]
        if self.backend == "cuda":
            words += ["scratch.data_ptr()"] if kernel.scratch else []
            words.append("torch.cuda.current_stream().cuda_stream")
            self.body.append(f"checked(library.{kernel.name}({', '.join(words)}))")
        else:
            self.body.append(f"library.{kernel.name}({', '.join(words)})")

    def prepare(self, index: int) -> None:
        """Makes sure that a kernel finds plain memory behind a name."""
        if index in self.ready:
            return
        node = self.graph[index]
        if node.op == "leaf":
            self.ready[index] = f"c{index}"
            whole = f"{self.names[index]}.contiguous()"
            if self.backend == "cuda":  # vector loads want 16 bytes
                whole = f"aligned({self.names[index]})"
            self.body.append(f"c{index} = {whole}")
        else:
            name = self.name(index)
            self.ready[index] = name
            self.body.append(f"{name} = ready({name}, {node.shape})")
            if self.backend == "cuda":
                self.body.append(f"{name} = aligned({name})")

    def reusable(self, region: Region, place: int) -> dict[int, int]:
        """Outputs that may lie where an input lay: output -> input.

        The input is a product that PyTorch made for us alone, read for the last time here, and
        each number is read before its place is written.
        """
        if self.knobs.memory != "reuse" or region.pool is not None:
            return {}
        layout = lay_out(self.graph, region)
        flow = Flow(self.graph, region, layout, self.knobs)
        found: dict[int, int] = {}
        for store in layout.stores:
            for load in layout.loads:
                if (
                    self.graph[load.base].fresh
                    and load.node == load.base
                    and (load.strides, load.offset) == (store.strides, 0)
                    and sum(other.base == load.base for other in layout.loads) == 1
                    and self.last.get(load.base) == place
                    and load.base not in self.results
                    and load.base not in found.values()
                    and self.graph[load.base].shape == self.graph[store.node].shape
                    and flow.stage[store.node] == flow.last
                ):
                    found[store.node] = load.base
                    break
        return found

    def returned(self, output: object) -> str:
        if isinstance(output, int):
            return self.name(output)
        if isinstance(output, dict):
            pairs = (f"{key!r}: {self.returned(item)}" for key, item in output.items())
            return f"{{{', '.join(pairs)}}}"
        if not isinstance(output, tuple | list):
            raise TypeError("an output is a node or a nesting of nodes")
        inner = ", ".join(self.returned(item) for item in output)
        if isinstance(output, list):
            return f"[{inner}]"
        return f"({inner},)" if len(output) == 1 else f"({inner})"
