"""Use two versions of a package in one process: `python use_package.py FOLDER FOLDER MODULE`.

Each has one part, whose kernels were judged on cases in several dtypes.  The program prints a line
for each use; its status is 1 where a winner differs from the original.
"""

from __future__ import annotations

import importlib
import io
import sys
from pathlib import Path
from typing import Any

import torch

TOLERANCES = {torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 3e-2}


class Use:
    """The uses of one version on one device."""

    def __init__(self, package: Any, name: str) -> None:
        self.part = importlib.import_module(f"{package.__name__}.{package.PARTS[0]}")
        self.device = self.part.JUDGED["device"]
        self.name, self.wrong = name, 0

    def pair(self, dtype: torch.dtype) -> tuple[Any, Any, list[torch.Tensor]]:
        init = self.part.get_init_inputs()
        plain, winner = (
            kind(*init).to(self.device, dtype) for kind in (self.part.Model, self.part.ModelNew)
        )
        winner.load_state_dict(plain.state_dict())
        return plain, winner, [x.to(self.device, dtype) for x in self.part.get_inputs()]

    def line(self, name: str, found: torch.Tensor, expected: torch.Tensor, ran: object) -> None:
        largest = float(expected.abs().max())
        off = float((found.float() - expected.float()).abs().max()) / largest
        right = found.dtype == expected.dtype and off <= TOLERANCES[expected.dtype]
        self.wrong += not right
        word = "right" if right else "WRONG"
        print(f"{self.name} {name}: {word}, off by {off:.1g}, kernels ran: {ran}")  # noqa: T201

    def run(self) -> int:
        """Try all uses; return the number of wrong ones."""
        for dtype in TOLERANCES:
            self.use_dtype(dtype)
        plain, winner, inputs = self.pair(torch.float32)
        with torch.autocast(self.device, torch.bfloat16), torch.no_grad():
            self.line("autocast", winner(*inputs), plain(*inputs), "no")
        gradients = []
        for module in (winner, plain):
            given = [each.clone().requires_grad_() for each in inputs]
            gradients.append(torch.autograd.grad(module(*given).square().sum(), given)[0])
        self.line("requires_grad", *gradients, "no")
        with torch.no_grad():
            self.export(plain, winner, inputs)
            if self.device == "cuda":
                self.graph(plain, winner, inputs)
        return self.wrong

    def use_dtype(self, dtype: torch.dtype) -> None:
        plain, winner, inputs = self.pair(dtype)
        word = str(dtype).removeprefix("torch.")
        torch._dynamo.reset()
        compiled = torch.compile(winner, fullgraph=True)
        with torch.no_grad():
            self.line(word, winner(*inputs), plain(*inputs), winner.kernel_stats())
            shorter = [each[:3].clone() for each in inputs]
            self.line(f"{word} 3 rows", winner(*shorter), plain(*shorter), winner.kernel_stats())
            before = winner.kernel_stats()["kernel"]
            found = compiled(*inputs)
            ran = winner.kernel_stats()["kernel"] > before
            self.line(f"{word} compiled", found, plain(*inputs), ran)
            state = [each.detach() for each in plain.state_dict().values()]
            found = self.part.forward(*inputs, *state)
            self.line(f"{word} operator", found, plain(*inputs), self.part.stats()["kernel"])

    def export(self, plain: Any, winner: Any, inputs: list[torch.Tensor]) -> None:
        file = io.BytesIO()
        torch.export.save(torch.export.export(winner, tuple(inputs)), file)
        file.seek(0)
        program = torch.export.load(file)
        held = any("stark_" in str(node.target) for node in program.graph.nodes)
        self.line("exported", program.module()(*inputs), plain(*inputs), f"operator {held}")

    def graph(self, plain: Any, winner: Any, inputs: list[torch.Tensor]) -> None:
        winner(*inputs)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = winner(*inputs)
        for each in inputs:
            each.copy_(torch.randn_like(each))
        graph.replay()
        torch.cuda.synchronize()
        self.line("CUDA graph", found, plain(*inputs), winner.kernel_stats()["kernel"])


def imported(folder: Path, module: str) -> Any:
    """Import a package; another version of it stays as it is."""
    for name in [name for name in sys.modules if name.partition(".")[0] == module]:
        del sys.modules[name]
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(module)
    finally:
        sys.path.pop(0)


def main(first: str, second: str, module: str) -> int:
    """Use both versions in turn; return the exit status."""
    uses = []
    for name, folder in (("first", first), ("second", second)):
        package = imported(Path(folder).resolve(), module)
        uses.append(Use(package, name))  # the parts of this version are imported by now
    return int(any([use.run() for use in uses]))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
