"""ModelNew's forward for the tensors of one case: a guard, launches of kernels, and the rest.

Where the guard does not hold, the method calls another one with the same arguments: the method of
the next case, and `plain_forward` at last.
"""

from __future__ import annotations

import ast
import math

import msgspec

from actors.agents.recipes.codegen.elements import Element
from actors.agents.recipes.codegen.gradient_program import GradientNodes
from actors.agents.recipes.codegen.passes import Kernel, PassPlan
from actors.agents.recipes.frontend.statements import ForwardProgram
from actors.agents.recipes.ir.graph import Shape, contiguous
from actors.agents.recipes.ir.memory_orders import inverse_of
from actors.agents.recipes.schedule.fusion import Region, Schedule
from actors.agents.recipes.schedule.knobs import Knobs
from actors.agents.recipes.schedule.loop_nests import plan_loops


class CaseKernels(msgspec.Struct, frozen=True, kw_only=True):
    """One case of a task: its forward as a graph, the order of the steps, the kernels."""

    program: ForwardProgram
    schedule: Schedule
    kernels: dict[Region, Kernel]
    gradients: GradientNodes | None = None  # of a task that is judged with its backward pass
    backward: Schedule | None = None
    backward_kernels: dict[Region, Kernel] = {}


class ForwardMethod:
    """Writes one method."""

    def __init__(
        self, case: CaseKernels, knobs: Knobs, backend: str, element: Element = "float32"
    ) -> None:
        self.program, self.schedule, self.kernels = case.program, case.schedule, case.kernels
        self.knobs, self.backend, self.element = knobs, backend, element
        self.graph, self.gradients = case.program.graph, case.gradients
        self.names: dict[int, str] = {}
        self.body: list[str] = []
        self.dense_names: dict[int, str] = {}  # node -> variable whose memory a kernel may read

    def text(self, name: str, spec: ast.arguments, otherwise: str, *, has_arguments: bool) -> str:
        """The method `name`, which calls the method `otherwise` where its guard does not hold.

        `spec`: the arguments of the task's forward.  `has_arguments`: the constructor notes whether
        it was given the expected arguments.
        """
        parameters = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs, spec.vararg, spec.kwarg]
        argument_names = [arg.arg for arg in parameters if arg is not None]
        guard = ["self.as_written"] if has_arguments else []
        guard += [f"not {text}.training" for text in self.program.eval_mode_modules]
        guard += self.program.guards
        held = self.hold_parameters(argument_names)
        given, own = self.guards(argument_names)
        self.steps()
        call = f"return self.{otherwise}({', '.join(self.program.call_arguments)})"
        lines = [
            f"    def {name}({ast.unparse(spec)}):",
            # First what differs from case to case: another one should not pay for the parameters.
            *(_refusal(given, call) if given and held else []),
            *(f"        {line}" for line in held),
            *_refusal([*guard, *([] if given and held else given), *own] or ["True"], call),
            *(f"        {line}" for line in self.body),
            f"        return {self.return_expression(self.program.output)}",
        ]
        return "\n".join(lines)

    def hold_parameters(self, argument_names: list[str]) -> list[str]:
        """Bind parameters and buffers to local names: a module looks each one up at every use."""
        lines = []
        for index in sorted(self.graph.ancestors(self.program.results)):
            node = self.graph[index]
            if node.op == "leaf":
                self.names[index] = node.text if node.text in argument_names else f"p{index}"
                if node.text not in argument_names:
                    lines.append(f"p{index} = {node.text}")
        return lines

    def guards(self, argument_names: list[str]) -> tuple[list[str], list[str]]:
        """Conditions on the forward's tensors, and on parameters and the device."""
        given: list[str] = []
        own: list[str] = []
        leaves = [
            index
            for index in sorted(self.graph.ancestors(self.program.results))
            if self.graph[index].op == "leaf"
        ]
        for index in leaves:
            is_given = self.graph[index].text in argument_names
            check = f"fits({self.names[index]}, {self.graph[index].shape})"
            (given if is_given else own).append(check)
        if self.backend == "cuda" and leaves:
            first = self.names[leaves[0]]
            own.append(f"{first}.get_device() == torch.cuda.current_device()")
        return given, own

    def steps(self) -> None:
        last: dict[int, int] = {}
        for place, step in enumerate(self.schedule.steps):
            for index in self.inputs_of_step(step):
                last[index] = place
        results = {self.storage_of(i) for i in self.program.results} | set(self.program.results)
        self.last, self.results = last, results
        for place, step in enumerate(self.schedule.steps):
            if isinstance(step, Region):
                self.launch_statement(step, place)
            else:
                self.torch_statement(step)
            gone = sorted(
                {
                    name
                    for i, end in last.items()
                    if end == place and i not in results and i in self.names
                    and self.graph[i].op != "leaf"
                    for name in (self.names[i], self.dense_names.get(i, self.names[i]))
                }
            )  # fmt: skip
            in_use = {
                name
                for i in self.names
                if last.get(i, -1) > place or i in results
                for name in (self.names[i], self.dense_names.get(i, ""))
            }
            gone = [name for name in gone if name not in in_use and name.startswith(("t", "c"))]
            if gone and place < len(self.schedule.steps) - 1:
                self.body.append(f"del {', '.join(gone)}")

    def storage_of(self, index: int) -> int:
        node = self.graph[index]
        return node.args[0] if node.op == "view" else index

    def inputs_of_step(self, step: Region | int) -> list[int]:
        if isinstance(step, Region):
            return list(self.kernels[step].reads)
        return [self.storage_of(step)] if self.graph[step].op == "view" else [
            j for arg in self.graph[step].args for j in (arg, self.storage_of(arg))]  # fmt: skip

    def variable_of(self, index: int) -> str:
        node = self.graph[index]
        if node.op == "leaf" and index in self.dense_names and index not in self.graph.orders:
            return self.dense_names[index]
        return self.names[index]

    def torch_statement(self, index: int) -> None:
        """A node that PyTorch computes, or a view that PyTorch or the result needs."""
        node = self.graph[index]
        if node.op == "view":
            users = {a for i in self.graph.ancestors(self.program.results)
                     if self.graph[i].op == "torch" for a in self.graph[i].args}  # fmt: skip
            if index not in users and index not in self.program.results:
                return
            text = self.view_statement(index)
        else:
            text = node.text.strip().format(*(self.variable_of(arg) for arg in node.args))
        self.names[index] = f"t{index}"
        self.body.append(f"t{index} = {text}")

    def view_statement(self, index: int) -> str:
        node = self.graph[index]
        base = self.variable_of(node.args[0])
        plain = node.strides == contiguous(node.sizes) and node.offset == 0
        if plain and math.prod(self.graph[node.args[0]].sizes) == math.prod(node.sizes):
            return f"{base}.reshape({node.shape})"
        return f"{base}.contiguous().as_strided({node.shape}, {node.strides}, {node.offset})"

    def launch_statement(self, region: Region, place: int) -> None:
        kernel = self.kernels[region]
        for index in kernel.reads:
            self.ensure_dense(index)
        reused = self.reusable_outputs(region, place)
        for index in kernel.writes:
            self.names[index] = f"t{index}"
            if index in reused:
                made = self.dense_names[reused[index]]
            else:
                shape = self.in_memory_order(index)
                made = f"{self.dense_names[kernel.reads[0]]}.new_empty({shape})"
            order = self.graph.orders.get(index)
            back = "" if order is None else f".permute({inverse_of(order)})"
            self.body.append(f"t{index} = {made}{back}")
        if kernel.scratch:
            kind = "" if self.element == "float32" else ", dtype=torch.float32"
            self.body.append(
                f"scratch = {self.dense_names[kernel.reads[0]]}.new_empty({kernel.scratch}{kind})"
            )
        arguments = [f"{self.dense_names[i]}.data_ptr()" for i in kernel.reads]
        arguments += [f"{self.names[i]}.data_ptr()" for i in kernel.writes]
        for index in kernel.writes:
            self.dense_names[index] = self.names[index]
        if self.backend == "cuda":
            arguments += ["scratch.data_ptr()"] if kernel.scratch else []
            arguments.append("current_stream()")
            self.body.append(f"checked(library.{kernel.name}({', '.join(arguments)}))")
        else:
            self.body.append(f"library.{kernel.name}({', '.join(arguments)})")

    def ensure_dense(self, index: int) -> None:
        """Make a node's tensor contiguous, so that a kernel may read its memory."""
        if index in self.dense_names:
            return
        node, order = self.graph[index], self.graph.orders.get(index)
        if node.op == "leaf":
            self.dense_names[index] = f"c{index}"
            moved = "" if order is None else f".permute({order})"
            whole = f"{self.names[index]}{moved}.contiguous()"
            if self.backend == "cuda":  # vector loads want 16 bytes
                whole = f"aligned({self.names[index]}{moved})"
            self.body.append(f"c{index} = {whole}")
        else:
            given = self.variable_of(index)
            # In its own order it is another tensor than the one that PyTorch works with.
            name = given if order is None else f"c{index}"
            self.dense_names[index] = name
            moved = "" if order is None else f", {order}"
            self.body.append(f"{name} = ready({given}, {node.shape}{moved})")
            if self.backend == "cuda":
                self.body.append(f"{name} = aligned({name})")

    def in_memory_order(self, index: int) -> Shape:
        """A node's sizes, the slowest dimension in memory first."""
        sizes = self.graph[index].sizes
        return tuple(sizes[d] for d in self.graph.orders.get(index, range(len(sizes))))

    def reusable_outputs(self, region: Region, place: int) -> dict[int, int]:
        """The outputs that may use an input's memory: output -> input.

        The input is a product that PyTorch computed for this forward alone, and it is read for the
        last time here; each of its numbers is read before its place is written.
        """
        if self.knobs.memory != "reuse" or region.pool is not None:
            return {}
        loops = plan_loops(self.graph, region)
        pass_plan = PassPlan(self.graph, region, loops, self.knobs)
        found: dict[int, int] = {}
        for store in loops.stores:
            for load in loops.loads:
                if (
                    self.graph[load.base].fresh
                    and load.node == load.base
                    and (load.strides, load.offset) == (store.strides, 0)
                    and sum(other.base == load.base for other in loops.loads) == 1
                    and self.last.get(load.base) == place
                    and load.base not in self.results
                    and load.base not in found.values()
                    and self.graph[load.base].shape == self.graph[store.node].shape
                    and pass_plan.pass_of[store.node] == pass_plan.last
                ):
                    found[store.node] = load.base
                    break
        return found

    def return_expression(self, output: object) -> str:
        if isinstance(output, int):
            return self.variable_of(output)
        if isinstance(output, dict):
            pairs = (f"{key!r}: {self.return_expression(item)}" for key, item in output.items())
            return f"{{{', '.join(pairs)}}}"
        if not isinstance(output, tuple | list):
            raise TypeError("an output is a node or a nesting of nodes")
        inner = ", ".join(self.return_expression(item) for item in output)
        if isinstance(output, list):
            return f"[{inner}]"
        return f"({inner},)" if len(output) == 1 else f"({inner})"


def _refusal(conditions: list[str], call: str) -> list[str]:
    """Lines that leave a method by `call` unless all conditions hold."""
    return [
        "        if not (",
        "            " + "\n            and ".join(conditions),
        "        ):",
        f"            {call}",
    ]
