"""Something known, computed on the device: a product of matrices of ones, an exact sum."""

from __future__ import annotations

import torch

SIZE = 256


class DeviceCheckError(RuntimeError):
    """The device computed something else."""


def check_device(device: str) -> None:
    """Raise `DeviceCheckError` when the device gets it wrong; what else is raised says as much."""
    ones = torch.ones(SIZE, SIZE, device=device)
    total = (ones @ ones).sum().item()
    if total != SIZE**3:
        raise DeviceCheckError(f"{SIZE}^3 ones add up to {total}")
