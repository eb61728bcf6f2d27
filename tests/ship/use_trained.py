"""Use a winner's file that was judged with its backward pass: `python use_trained.py FILE`.

The program prints a line for each use; its status is 1 where the winner differs from the original.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

TOLERANCE = 1e-3


def gradients(module: Any, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    given = [each.clone().requires_grad_() for each in inputs]
    loss = module(*given).float().square().mean()
    return list(torch.autograd.grad(loss, [*given, *module.parameters()]))


def off(found: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    """Return the largest difference, as a share of the largest element."""
    pairs = zip(found, expected, strict=True)
    return max(float((one - two).abs().max() / two.abs().max()) for one, two in pairs)


def main(path: Path) -> int:
    """Use the winner in training; return the exit status."""
    sys.path.insert(0, str(path.parent))
    file: Any = __import__(path.stem)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    plain, winner = (
        kind(*file.get_init_inputs()).to(device) for kind in (file.Model, file.ModelNew)
    )
    winner.load_state_dict(plain.state_dict())
    drawn = file.get_inputs()
    inputs = [each.to(device) for each in (drawn.values() if isinstance(drawn, dict) else drawn)]
    status = 0

    def line(name: str, found: float | bool, kernels: bool | None = None) -> None:
        nonlocal status
        ran = winner.kernel_stats()["kernel"] > line_state["kernel"]
        right = (found if isinstance(found, bool) else found < TOLERANCE) and kernels in (None, ran)
        status |= not right
        line_state["kernel"] = winner.kernel_stats()["kernel"]
        shown = "" if isinstance(found, bool) else f", off by {found:.1g}"
        print(f"{name}: {'right' if right else 'WRONG'}{shown}, kernels ran: {ran}")  # noqa: T201

    line_state = {"kernel": 0}
    line("gradients", off(gradients(winner, inputs), gradients(plain, inputs)), kernels=True)
    steps = [trained(module, inputs) for module in (winner, plain)]
    line("training", off(*steps), kernels=True)
    line("second derivative raises", raises(lambda: second(winner, inputs)), kernels=True)
    shorter = [each[: len(each) // 2].clone() for each in inputs]
    line("half the batch", off(gradients(winner, shorter), gradients(plain, shorter)), False)
    with torch.autocast(device, torch.bfloat16):
        line("autocast", off(gradients(winner, inputs), gradients(plain, inputs)), False)
    compiled = torch.compile(winner, backend="aot_eager")
    line("compiled", off(gradients(compiled, inputs), gradients(plain, inputs)), False)
    with torch.no_grad():
        line("compiled, no gradients", off([compiled(*inputs)], [plain(*inputs)]))
        line("no gradients", off([winner(*inputs)], [plain(*inputs)]), kernels=True)
    first = [winner(*(each.clone().requires_grad_() for each in inputs)) for _ in range(2)]
    sums = [torch.autograd.grad(each.sum(), list(winner.parameters()))[0] for each in first]
    line("two forwards, two backwards", off(sums[:1], sums[1:]), kernels=True)
    return status


def trained(module: Any, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.01)
    for _ in range(5):
        optimizer.zero_grad()
        given = [each.clone().requires_grad_() for each in inputs]
        module(*given).float().square().mean().backward()
        optimizer.step()
    return [each.detach().clone() for each in module.parameters()]


def second(module: Any, inputs: list[torch.Tensor]) -> None:
    given = [each.clone().requires_grad_() for each in inputs]
    torch.autograd.grad(module(*given).square().sum(), given, create_graph=True)


def raises(function: Callable[[], None]) -> bool:
    try:
        function()
    except RuntimeError as error:
        return "second derivatives" in str(error)
    return False


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
