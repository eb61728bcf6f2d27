"""Packages for tests: made of a winner's file, as `ship.py` makes them, without the battery."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from actors.evaluator.children.tensors.tensor_bytes import layout_of
from actors.release.composition import drop_in_source
from actors.ship.new_folder import new_folder, place
from actors.ship.package import PackageFiles, package_files
from actors.ship.shipped_winner import of_file
from protocol.layouts import Nest
from protocol.release import Judged, Release
from protocol.values import DeviceKind

TASK = """\
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features, slope=0.5):
        super().__init__()
        self.lin = nn.Linear(features, features)
        self.slope = slope

    def forward(self, x, y):
        return torch.relu(self.lin(x)) * self.slope + y


def get_inputs():
    return [torch.randn(4, 16), torch.randn(4, 16)]


def get_init_inputs():
    return [16]
"""
# Wrong with gradients, like kernels that work on pointers; `{scale}` plants a wrong result.
PLAIN_KERNELS = """\
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features, slope=0.5):
        super().__init__()
        self.lin = nn.Linear(features, features)
        self.slope = slope

    def forward(self, x, y):
        x, y, weight, bias = (t.detach() for t in (x, y, self.lin.weight, self.lin.bias))
        return torch.relu(x @ weight.t() + bias) * self.slope * {scale} + y
"""
# Keeps what it made of the first weights: right until a module has others.
KEEPING_KERNELS = """\
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features, slope=0.5):
        super().__init__()
        self.lin = nn.Linear(features, features)
        self.slope = slope
        self.kept = None

    def forward(self, x, y):
        if self.kept is None or self.version != self.lin.weight._version:
            self.kept = self.lin.weight.detach().t().contiguous()
            self.version = self.lin.weight._version
        return torch.relu(x @ self.kept + self.lin.bias.detach()) * self.slope + y
"""
COMPILED_KERNELS = """\
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = r'''
#include <algorithm>
#include <torch/extension.h>
torch::Tensor fused(torch::Tensor x, torch::Tensor w, torch::Tensor b, torch::Tensor y, double k) {
  TORCH_CHECK(x.is_contiguous() && x.scalar_type() == torch::kFloat, "x: contiguous floats");
  auto out = torch::empty_like(x);
  const float *xp = x.data_ptr<float>(), *wp = w.data_ptr<float>(), *bp = b.data_ptr<float>();
  const float* yp = y.data_ptr<float>();
  float* op = out.data_ptr<float>();
  const int64_t n = x.size(1);
  at::parallel_for(0, x.size(0), 1, [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r)
      for (int64_t c = 0; c < n; ++c) {
        float sum = bp[c];
        for (int64_t i = 0; i < n; ++i) sum += xp[r * n + i] * wp[c * n + i];
        op[r * n + c] = std::max(sum, 0.0f) * static_cast<float>(k) + yp[r * n + c];
      }
  });
  return out;
}
'''
library = load_inline(
    name="fused", cpp_sources=SOURCE, functions=["fused"], extra_cflags=["-O3", "-march=native"]
)


class ModelNew(nn.Module):
    def __init__(self, features, slope=0.5):
        super().__init__()
        self.lin = nn.Linear(features, features)
        self.slope = slope

    def forward(self, x, y):
        return library.fused(x, self.lin.weight, self.lin.bias, y, self.slope)
"""
_numbers = itertools.count()


def winner_file(
    folder: Path,
    kernels: str,
    task: str = TASK,
    *,
    dtypes: tuple[str, ...] = ("",),
    device: DeviceKind = "cpu",
) -> Path:
    """Write a winner's file as a run writes it, with a case for each dtype; return its path."""
    cases = [_judged(task, dtype, device) for dtype in dtypes]
    path = folder / "gate.py"
    release = Release(judged=cases[0], more_judged=tuple(cases[1:]))
    path.write_text(drop_in_source(task, kernels, release), encoding="utf-8")
    return path


def _judged(task: str, dtype: str, device: DeviceKind) -> Judged:
    """Return what a judge notes of one case."""
    names: dict[str, Any] = {}
    exec(compile(task, "task", "exec"), names)  # noqa: S102
    init, inputs = names["get_init_inputs"](), names["get_inputs"]()
    model = names["Model"](*init).to(device)
    if device == "cuda":
        inputs = [each.to(device) for each in inputs]
    if dtype:
        model.to(getattr(torch, dtype))
        inputs = [each.to(getattr(torch, dtype)) for each in inputs]
    state = model.state_dict()
    return Judged(
        device=device,
        init=layout_of(init),
        inputs=layout_of(inputs),
        outputs=layout_of(model(*inputs)),
        state=Nest(
            kind="dict",
            keys=tuple(state),
            items=tuple(layout_of(tensor) for tensor in state.values()),
        ),
        dtype=dtype,
    )


def package_of(
    folder: Path,
    kernels: str,
    name: str = "fused-gate",
    *,
    dtypes: tuple[str, ...] = ("",),
) -> PackageFiles:
    """Write the package of a winner into `folder` / name."""
    made = package_files(name, [of_file(winner_file(folder, kernels, dtypes=dtypes))])
    with new_folder(folder / name, made.files) as scratch:
        place(scratch, folder / name)
    return made


def imported(folder: Path, module: str) -> ModuleType:
    """Import a package under a name of its own, as a second version of it would be.

    Returns its winner, the part `gate`.
    """
    path = folder / module / "__init__.py"
    alone = f"{module}_{next(_numbers)}"
    spec = importlib.util.spec_from_file_location(
        alone, path, submodule_search_locations=[str(path.parent)]
    )
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[alone] = loaded
    spec.loader.exec_module(loaded)
    return importlib.import_module(f"{alone}.gate")
