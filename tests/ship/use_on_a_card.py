"""Use a package of one CUDA winner as its users do: `python use_on_a_card.py MODULE`.

Each line is one use: right or WRONG against eager PyTorch in float32, and whether the kernels ran.
The status is 1 where a use is wrong.
"""

from __future__ import annotations

import importlib
import io
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import torch

CUDA: Any = torch.cuda  # torch's own functions are untyped
FACTOR = 8.0  # a kernel's error may be so many times eager's own


class CardUse:
    """The uses of one package."""

    def __init__(self, module: str) -> None:
        self.package = importlib.import_module(module)
        self.part: Any = getattr(self.package, self.package.PARTS[0])
        init = self.part.get_init_inputs()
        self.plain = self.part.Model(*init).cuda()
        self.winner = self.part.ModelNew(*init).cuda()
        self.winner.load_state_dict(self.plain.state_dict())
        self.inputs = self.draw(0)
        self.wrong = 0
        with torch.no_grad():
            self.expected = self.plain(*self.inputs)
            own = (self.expected.double() - self.exact()).abs().max().item()
            self.allowed = max(1e-4 * self.expected.abs().max().item(), FACTOR * own)

    def draw(self, seed: int) -> list[Any]:
        torch.manual_seed(seed)
        return [each.cuda() for each in self.part.get_inputs()]

    def exact(self) -> torch.Tensor:
        """Return the outputs in float64."""
        doubled: Any = self.part.Model(*self.part.get_init_inputs()).cuda().double()
        doubled.load_state_dict(self.plain.state_dict())
        found: torch.Tensor = doubled(*[each.double() for each in self.inputs])
        return found

    def try_use(self, name: str, use: Callable[[], tuple[Any, Any]]) -> None:
        """Print a line about one use, which returns what was found and what is right."""
        before = self.part.stats()["kernel"]
        try:
            found, expected = use()
            torch.cuda.synchronize()
            same = found.shape == expected.shape and found.dtype == expected.dtype
            off = (found.double() - expected.double()).abs().max().item() if same else float("inf")
            word = "right" if off <= self.allowed else "WRONG"
            note = f"off by {off:.1e} of {self.allowed:.1e}"
        except Exception as error:  # noqa: BLE001  # whatever a use raises is the finding
            word, note = "WRONG", f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        self.wrong += word == "WRONG"
        ran = self.part.stats()["kernel"] - before
        print(f"{self.package.__name__}: {name}: {word}, {note}; kernels: {ran}", flush=True)  # noqa: T201

    # --- the uses ---

    @torch.no_grad()
    def values(self) -> tuple[Any, Any]:
        return self.winner(*self.inputs).double(), self.exact()

    @torch.no_grad()
    def other_batch(self) -> tuple[Any, Any]:
        half = [
            each[: max(1, each.shape[0] // 2)].clone() if each.dim() else each
            for each in self.inputs
        ]
        return self.winner(*half), self.plain(*half)

    @torch.no_grad()
    def compiled(self) -> tuple[Any, Any]:
        compiled: Any = torch.compile(self.winner, fullgraph=True)
        return compiled(*self.inputs), self.expected

    @torch.no_grad()
    def exported(self) -> tuple[Any, Any]:
        file = io.BytesIO()
        torch.export.save(torch.export.export(self.winner, tuple(self.inputs)), file)
        file.seek(0)
        return torch.export.load(file).module()(*self.inputs), self.expected

    @torch.no_grad()
    def graph(self) -> tuple[Any, Any]:
        held = self.draw(0)
        self.winner(*held)
        torch.cuda.synchronize()
        graph = CUDA.CUDAGraph()
        with CUDA.graph(graph):
            found = self.winner(*held)
        for each, fresh in zip(held, self.draw(3), strict=True):
            each.copy_(fresh)
        graph.replay()
        return found, self.plain(*held)

    def autocast(self) -> tuple[Any, Any]:
        with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
            return self.winner(*self.inputs), self.plain(*self.inputs)

    def gradients(self) -> tuple[Any, Any]:
        found = []
        for module in (self.winner, self.plain):
            given = [each.clone().requires_grad_(each.is_floating_point()) for each in self.inputs]
            wanted = [each for each in given if each.requires_grad] + list(module.parameters())
            grads = torch.autograd.grad(module(*given).sum(), wanted, allow_unused=True)
            found.append(torch.cat([grad.flatten() for grad in grads if grad is not None]))
        return found[0], found[1]

    @torch.no_grad()
    def two_streams(self) -> tuple[Any, Any]:
        """Calls on two streams at once, each with its own inputs."""
        streams = [CUDA.Stream(), CUDA.Stream()]
        draws = [self.draw(1), self.draw(2)]
        torch.cuda.synchronize()
        found: list[Any] = [None, None]
        for _ in range(4):
            for number, stream in enumerate(streams):
                with CUDA.stream(stream):
                    found[number] = self.winner(*draws[number])
        torch.cuda.synchronize()
        return torch.stack(found), torch.stack([self.plain(*each) for each in draws])

    def two_threads(self) -> tuple[Any, Any]:
        draws = [self.draw(1), self.draw(2)]
        found: list[Any] = [None, None]

        def work(number: int) -> None:
            with torch.no_grad():
                for _ in range(4):
                    found[number] = self.winner(*draws[number])

        threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with torch.no_grad():
            return torch.stack(found), torch.stack([self.plain(*each) for each in draws])

    @torch.no_grad()
    def on_the_processor(self) -> tuple[Any, Any]:
        init = self.part.get_init_inputs()
        small = [each[:1].cpu() if each.dim() else each.cpu() for each in self.inputs]
        plain, winner = self.part.Model(*init), self.part.ModelNew(*init)
        winner.load_state_dict(plain.state_dict())
        return winner(*small), plain(*small)

    @torch.no_grad()
    def speed(self) -> None:
        """Print the device time of a call of both, medians of 20 calls."""
        times = []
        for module in (self.plain, self.winner):
            module(*self.inputs)
            calls = []
            for _ in range(20):
                begin, end = (CUDA.Event(enable_timing=True) for _ in range(2))
                begin.record()
                module(*self.inputs)
                end.record()
                end.synchronize()
                calls.append(begin.elapsed_time(end) * 1e3)
            times.append(sorted(calls)[10])
        text = f"eager {times[0]:.1f} µs, ModelNew {times[1]:.1f} µs, {times[0] / times[1]:.2f}×"
        print(f"{self.package.__name__}: speed: {text}", flush=True)  # noqa: T201

    def run(self) -> int:
        self.try_use("values", self.values)
        extensions = importlib.import_module(f"{self.package.__name__}.extensions")
        for asked, how in extensions.requests.values():
            print(f"{self.package.__name__}: {asked['name']}: {how}", flush=True)  # noqa: T201
        self.speed()
        for name in (
            *("other_batch", "autocast", "gradients", "two_streams", "two_threads", "graph"),
            *("on_the_processor", "exported", "compiled"),
        ):
            self.try_use(name.replace("_", " "), getattr(self, name))
        for reason, calls in self.part.stats()["reasons"].items():
            print(f"{self.package.__name__}: the original, {calls}×: {reason}", flush=True)  # noqa: T201
        return int(self.wrong > 0)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(CardUse(sys.argv[1]).run())
