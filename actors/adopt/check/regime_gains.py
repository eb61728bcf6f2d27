"""The fitted model under torch.compile and CUDA graphs, compared with the original under them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import torch

from actors.adopt.check.memory_peak import free_bytes
from actors.adopt.check.step_timing import Gain, compare_states
from actors.adopt.look.look import compile_mode, each_step
from actors.adopt.model.model_file import Batch, ModelFile
from actors.adopt.stage.errors import first_line

WARM_UPS = 3  # compilation, recording of a CUDA graph, replay


class RegimeGain(msgspec.Struct, frozen=True, kw_only=True):
    """What all kept winners bring where the model is compiled."""

    name: str
    gain: Gain | None = None
    engaged: int = 0  # fitted places whose kernel ran, or is in a graph
    problem: str = ""  # why it was not measured

    @property
    def is_faster(self) -> bool:
        """Whether the model is faster with the winners, and their kernels ran."""
        return self.gain is not None and self.gain.low > 1.0 and self.engaged > 0


def regime_gain(
    name: str,
    file: ModelFile,
    batches: Sequence[Batch],
    package: Any,
    kept: Sequence[str],
    seconds: float,
) -> RegimeGain:
    """Compile two models of build(), one with the winners, and time whole steps of both."""
    try:
        models = [file.build(), file.build()]
        device = _device(models[0])
        if device.type == "cpu" and free_bytes(device) < _bytes(models[0]):
            return RegimeGain(name=name, problem="two models do not fit into memory")
        package.fit(models[1], only=list(kept))
        runs = []
        for model in models:
            compiled: Any = torch.compile(model, mode=compile_mode(name))
            runs.append(each_step(file, compiled, batches))
            for _ in range(WARM_UPS):
                for step in runs[-1]:
                    step()
        turn = _Turn(runs)
        steps = [functools.partial(turn.run, number) for number in range(len(batches))]
        gain = compare_states(lambda: turn.set(0), lambda: turn.set(1), steps, device, seconds)
    except Exception as error:  # noqa: BLE001  # a compiler, on the user's model
        return RegimeGain(name=name, problem=first_line(error, 160))
    places = package.report(models[1]).values()
    engaged = sum(bool(each["kernel"] or each["in_graphs"]) for each in places)
    return RegimeGain(name=name, gain=gain, engaged=engaged)


class _Turn:
    """Which of two models runs."""

    def __init__(self, runs: Sequence[Sequence[Callable[[], object]]]) -> None:
        self._runs, self._which = runs, 0

    def set(self, which: int) -> None:
        self._which = which

    def run(self, number: int) -> object:
        return self._runs[self._which][number]()


def _device(model: torch.nn.Module) -> torch.device:
    first = next(iter(model.parameters()), None)
    return torch.device("cpu") if first is None else first.device


def _bytes(model: torch.nn.Module) -> int:
    return sum(tensor.nbytes for tensor in model.parameters())
