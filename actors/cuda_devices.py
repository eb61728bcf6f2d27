"""The devices that CUDA_VISIBLE_DEVICES names, as CUDA reads it; nothing is asked of a driver."""

from __future__ import annotations

import itertools
import re

# A number, or the UUID of a card or of a part of one.  Slurm writes "NoDevFiles" for a job without
# a card, others write "-1" or "none".
DEVICE_NAME = re.compile(r"\+?\d|GPU-|MIG-")


def named_devices(visible: str) -> tuple[str, ...]:
    """Return the names up to the first that is no device's; () where all cards are hidden."""
    names = (name.strip() for name in visible.split(","))
    return tuple(itertools.takewhile(DEVICE_NAME.match, names))
