"""The cards of this machine, found without importing torch."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from actors.cuda_devices import named_devices

NVIDIA_SMI_S = 20.0


def visible_gpus(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the usable CUDA devices, as CUDA_VISIBLE_DEVICES names them."""
    if is_torch_cpu_only():
        return ()
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        usable = named_devices(visible)
        is_valid = usable and len(set(usable)) == len(usable)  # else CUDA shows no device
        return usable if is_valid and _card_count() else ()
    return tuple(str(number) for number in range(_card_count()))


def is_torch_cpu_only() -> bool:
    """Whether the installed torch was built without CUDA (or is not there at all)."""
    try:
        return metadata.version("torch").endswith("+cpu")
    except metadata.PackageNotFoundError:
        return True


def _card_count() -> int:
    devices = [
        path for path in Path("/dev").glob("nvidia*") if re.fullmatch(r"nvidia\d+", path.name)
    ]
    if devices:
        # A batch system's control group closes the nodes of other jobs' cards, and CUDA counts only
        # those that it can open.
        return sum(os.access(path, os.R_OK | os.W_OK) for path in devices)
    try:
        listed = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=NVIDIA_SMI_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return sum(line.startswith("GPU ") for line in listed.stdout.splitlines())
