"""KernelBench-style evaluation: one process imports, builds, checks and times one candidate.

It works as public harnesses do: plain `load_inline`, five checks at 1e-4 with public seeds, three
warm-up calls, a hundred timed calls, their mean.  It is for comparison only: a candidate can forge
every figure.

    python -m scripts.benchmarks.kernelbench_style TASK CANDIDATE cpu|cuda
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from pathlib import Path
from types import ModuleType

import torch

CHECKS, WARM_UPS, SAMPLES = 5, 3, 100


def imported(path: Path, name: str) -> ModuleType:
    """Import a file."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(str(path))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def mean_us(model: torch.nn.Module, inputs: list[torch.Tensor], device: str) -> float:
    """Return the mean time of a call, in microseconds."""
    for _ in range(WARM_UPS):
        model(*inputs)
    total = 0.0
    for _ in range(SAMPLES):
        if device == "cuda":
            torch.cuda.synchronize()
        begun_at = time.perf_counter()
        model(*inputs)
        if device == "cuda":
            torch.cuda.synchronize()
        total += time.perf_counter() - begun_at
    return total / SAMPLES * 1e6


def main(task_path: str, candidate_path: str, device: str) -> None:
    """Print one line of JSON."""
    task = imported(Path(task_path), "task")
    candidate = imported(Path(candidate_path), "candidate")
    is_correct = True
    with torch.no_grad():
        for seed in range(CHECKS):
            torch.manual_seed(seed)
            reference = task.Model(*task.get_init_inputs()).to(device)
            torch.manual_seed(seed)
            model = candidate.ModelNew(*task.get_init_inputs()).to(device)
            inputs = [each.to(device) for each in task.get_inputs()]
            is_correct &= torch.allclose(model(*inputs), reference(*inputs), atol=1e-4, rtol=1e-4)
        speedup = mean_us(reference, inputs, device) / mean_us(model, inputs, device)
    print(json.dumps({"correct": is_correct, "speedup": speedup}))


if __name__ == "__main__":
    main(*sys.argv[1:])
