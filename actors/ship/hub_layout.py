"""The layout of Hugging Face's kernel-builder."""

from __future__ import annotations

from pathlib import Path

from actors.ship.errors import ShipError
from actors.ship.package import OpenedPackage


def write(package: OpenedPackage, out: Path) -> list[str]:
    raise ShipError("hub: not yet")
