"""Whether a device computes: a product whose result is known."""

from __future__ import annotations

import torch

CHECKED_MATRIX_SIZE = 256


class DeviceCheckError(RuntimeError):
    """The device computed a wrong result."""


def check_device(device: str) -> None:
    """Multiply matrices of ones, whose sum is exact; raise where the device gets it wrong.

    That is a `DeviceCheckError`, or whatever error the device itself reports.
    """
    ones = torch.ones(CHECKED_MATRIX_SIZE, CHECKED_MATRIX_SIZE, device=device)
    total = (ones @ ones).sum().item()
    if total != CHECKED_MATRIX_SIZE**3:
        raise DeviceCheckError(f"{CHECKED_MATRIX_SIZE}^3 ones add up to {total}")
