"""Uses a winner's file as a project would: `python use_winner.py best.py [cpu|cuda]`.

Trains a residual network with it, compiles it, runs it under DistributedDataParallel in two
processes; prints a line for each and ends with 1 if one of them differs from the plain module.
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


def trained(file: Any, kind: Any, device: str, wrap: Any) -> list[torch.Tensor]:
    """Train with the first input made by a scale that learns; return all that was learned."""
    torch.manual_seed(0)
    module = kind(*file.get_init_inputs()).to(device)
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


def agree(name: str, ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> bool:
    largest = max(float((a - b).abs().max()) for a, b in zip(ours, theirs, strict=True))
    right = largest < 1e-4
    print(f"{name}: {'right' if right else 'WRONG'} (largest difference {largest:.2g})")
    return right


def worker(rank: int, path: str, device: str, port: int) -> None:
    """One of two processes of a distributed training."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=2)
    file = loaded(path)
    wrap = torch.nn.parallel.DistributedDataParallel
    learned = [trained(file, kind, device, wrap) for kind in (file.Model, file.ModelNew)]
    right = agree(f"two processes, rank {rank}", learned[1], learned[0])
    dist.destroy_process_group()
    sys.exit(0 if right else 1)


def main(path: str, device: str) -> int:
    """Return the exit status."""
    warnings.simplefilter("ignore")
    file = loaded(path)
    plain = trained(file, file.Model, device, lambda m: m)
    found = [agree("training", trained(file, file.ModelNew, device, lambda m: m), plain)]
    compiled = trained(file, file.ModelNew, device, torch.compile)
    found.append(agree("training, compiled", compiled, plain))
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
            one, other = (v if isinstance(v, list | tuple) else [v] for v in (got, expected))
            found.append(agree(name, list(one), list(other)))
    print(f"kernel calls in inference: {module.kernel_stats()}")
    context = mp.spawn(worker, (path, device, 29_571), nprocs=2, join=False)
    try:
        while not context.join():
            pass
    except mp.ProcessExitedException:
        found.append(False)
    return 0 if all(found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "cpu"))
