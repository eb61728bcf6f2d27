"""Use a winner's file as a project would: `python use_winner.py best.py [cpu|cuda]`.

The program trains a residual network with the winner, compiles it, and trains it with
DistributedDataParallel in two processes.  It prints a line for each use; its status is 1 if the
winner differs from the plain module in one of them.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

STEPS = 5


def loaded(path: str) -> Any:
    """Import the file under a name that other processes can import, too."""
    sys.path.insert(0, str(Path(path).resolve().parent))
    spec = importlib.util.spec_from_file_location("winner", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["winner"] = module
    spec.loader.exec_module(module)
    return module


def inputs_of(file: Any, device: str, seed: int) -> list[Any]:
    torch.manual_seed(seed)
    return [v.to(device) if isinstance(v, torch.Tensor) else v for v in file.get_inputs()]


def trained(file: Any, module_class: Any, device: str, wrap: Any) -> list[torch.Tensor]:
    """Train the module and a scale of its first input; return the trained parameters."""
    torch.manual_seed(0)
    module = module_class(*file.get_init_inputs()).to(device)
    scale = torch.nn.Parameter(torch.ones((), device=device))
    wrapped = wrap(module) if list(module.parameters()) else module
    optimizer = torch.optim.SGD([scale, *module.parameters()], lr=0.01)
    for step in range(STEPS):
        first, *rest = inputs_of(file, device, step)
        first = first * scale
        out = wrapped(first, *rest)
        out = out[0] if isinstance(out, tuple | list) else out
        loss = out.float().square().mean() + first.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return [scale.detach(), *[p.detach() for p in module.parameters()]]


def is_same(name: str, winners: list[torch.Tensor], plains: list[torch.Tensor]) -> bool:
    """Print and return whether the tensors of winner and plain module agree."""
    largest = max(float((a - b).abs().max()) for a, b in zip(winners, plains, strict=True))
    right = largest < 1e-4
    print(f"{name}: {'right' if right else 'WRONG'} (largest difference {largest:.2g})")
    return right


def worker(rank: int, path: str, device: str, port: int) -> None:
    """Train in one of two distributed processes."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=2)
    file = loaded(path)
    wrap = torch.nn.parallel.DistributedDataParallel
    parameters = [trained(file, each, device, wrap) for each in (file.Model, file.ModelNew)]
    right = is_same(f"two processes, rank {rank}", parameters[1], parameters[0])
    dist.destroy_process_group()
    sys.exit(0 if right else 1)


def main(path: str, device: str) -> int:
    """Try all uses; return the exit status."""
    warnings.simplefilter("ignore")
    file = loaded(path)
    plain = trained(file, file.Model, device, lambda m: m)
    results = [is_same("training", trained(file, file.ModelNew, device, lambda m: m), plain)]
    compiled = trained(file, file.ModelNew, device, torch.compile)
    results.append(is_same("training, compiled", compiled, plain))
    inputs = inputs_of(file, device, 9)
    module = file.ModelNew(*file.get_init_inputs()).to(device)
    reference = file.Model(*file.get_init_inputs()).to(device)
    reference.load_state_dict(module.state_dict())
    with torch.no_grad():
        expected = reference(*inputs)
        for name, call in (("inference", module), ("inference, compiled", torch.compile(module))):
            torch._dynamo.reset()
            for _number in range(3):
                got = call(*inputs)
            winners, plains = (
                list(v) if isinstance(v, list | tuple) else [v] for v in (got, expected)
            )
            results.append(is_same(name, winners, plains))
    print(f"kernel calls in inference: {module.kernel_stats()}")
    context = mp.spawn(worker, (path, device, 29_571), nprocs=2, join=False)
    try:
        while not context.join():
            pass
    except mp.ProcessExitedException:
        results.append(False)
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "cpu"))
