"""What a call of a fitted module costs the host beside its kernel: µs of Python, layer by layer.

The kernel returns a tensor that is there already, so that all that is measured is around it.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import torch
from torch import nn

from actors.adopt.fit.fit import package_texts
from actors.adopt.model.call_layouts import layout_of
from actors.cli import OneLineParser
from actors.release.composition import drop_in_source
from protocol.layouts import Nest
from protocol.release import LIMITS, Judged, Limit, Release
from scripts.benchmarks.machine_info import machine

CALLS, ROUNDS = 1000, 30
TASK = """\
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(64))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight
"""
CANDIDATE = """\
import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(64))
        self.result = torch.zeros(4, 64)

    def forward(self, x):
        return self.result
"""


class Norm(nn.Module):
    """A model's norm, with two attributes of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.eps, self.size = 1e-6, 64
        self.weight = nn.Parameter(torch.ones(64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def fitted_norm(limits: tuple[Limit, ...]) -> tuple[Norm, ModuleType]:
    """Return a fitted norm and the package that fitted it."""
    model, x = nn.Sequential(Norm()).eval(), torch.randn(4, 64)
    tensor, weight = layout_of(x), layout_of(torch.ones(64))
    judged = Judged(
        device="cpu",
        init=Nest(kind="list", items=()),
        inputs=Nest(kind="list", items=(tensor,)),
        outputs=tensor,
        state=Nest(kind="dict", keys=("weight",), items=(weight,)),
    )
    with tempfile.TemporaryDirectory(prefix="fitted_norm_") as made:
        folder = Path(made)
        for name, text in package_texts().items():
            (folder / name).write_text(text, encoding="utf-8")
        release = Release(judged=judged, limits=limits)
        (folder / "winner_0.py").write_text(drop_in_source(TASK, CANDIDATE, release))
        sys.path.insert(0, str(folder.parent))
        package = importlib.import_module(folder.name)
        site = {
            **{"name": "norm", "module": "winner_0", "sites": ["0"], "gradients": False},
            **{"structure": package.structure(model[0]), "layouts": [layout_of(((x,), {}))]},
            **{"results": [tensor], "inputs": [0], "outputs": [0], "state": {"weight": "weight"}},
            "autocast": "",
        }
        (folder / "sites.json").write_bytes(msgspec.json.encode({"winners": [site]}))
        package.fit(model)
        model(x)
        if package.report(model)["0"]["kernel"] != 1:
            raise RuntimeError(f"the kernel did not run: {package.report(model)}")
    norm: Any = model[0]
    return norm, package


def layers(norm: Norm, package: ModuleType, x: torch.Tensor) -> dict[str, Callable[[], object]]:
    """Return the calls to time: the whole, and what it is made of."""
    fitted = vars(norm)["forward"]
    guard, twin = fitted.guard, fitted.twin
    flat_layout = package.layout_matching.flat_layout
    own_misfit = package.fitted_forward._own_misfit
    winner = sys.modules[fitted.module.__name__]
    own, idle = Norm().eval(), nn.Identity()
    return {
        "the module's own forward": lambda: own(x),
        "fitted module": lambda: norm(x),
        "  torch.nn.Module.__call__": lambda: idle(x),
        "  layout of the call": lambda: flat_layout((x,), fitted.flat, False),
        "  the module as it was fitted": lambda: own_misfit(fitted),
        "  the winner's guard": lambda: guard.misfit(twin, [x]),
        "    what is around the call": lambda: winner._context_misfit(),
        "    inputs": lambda: winner._fit([x], False, guard.cases),
        "    the winner's own module": lambda: guard.module_misfit(twin),
        "  kernel": lambda: guard.call(x),
        "a winner's ModelNew": lambda: twin(x),
        "its operator under torch.compile": lambda: winner._OPERATOR(
            guard.handle, [x], winner._state_of(twin), 0
        ),
    }


def least_us(calls: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Return the least time of each call; they take turns, for other programs only add time."""
    least = dict.fromkeys(calls, float("inf"))
    for _ in range(ROUNDS):
        for name, call in calls.items():
            begun = time.perf_counter()
            for _ in range(CALLS):
                call()
            least[name] = min(least[name], (time.perf_counter() - begun) / CALLS * 1e6)
    return least


def report() -> None:
    """Print the table: a confirmed winner, and one with the limits of an unconfirmed one."""
    torch.set_num_threads(1)
    x = torch.randn(4, 64)
    with torch.no_grad():
        columns = []
        for limits in ((), tuple(each for each in LIMITS if each != "other mode")):
            norm, package = fitted_norm(limits)
            columns.append(least_us(layers(norm, package, x)))
    print(f"{'µs a call':36} {'confirmed':>10} {'all limits':>10}")
    for name, us in columns[0].items():
        print(f"{name:36} {us:10.2f} {columns[1][name]:10.2f}")


if __name__ == "__main__":
    OneLineParser(
        prog="python -m scripts.benchmarks.call_overhead", description=__doc__
    ).parse_args()
    print(machine())
    report()
