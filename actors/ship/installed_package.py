"""A wheel installed by itself: a new environment with torch, without compilers and our code."""

from __future__ import annotations

import importlib.util
import tempfile
import venv
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from actors.ship.errors import ShipError
from protocol.frozen_struct import Value


class Installed(Value, frozen=True, kw_only=True):
    """One environment."""

    folder: Path  # where the wheel's files are
    python: str


@contextmanager
def environment(wheel: Path) -> Iterator[Installed]:
    """Yield a temporary environment that has the wheel and this process's torch."""
    torch = importlib.util.find_spec("torch")
    if torch is None or torch.origin is None:
        raise ShipError("torch is not installed here")
    with tempfile.TemporaryDirectory(prefix="stark-package-") as scratch:
        venv.create(scratch, symlinks=True)
        site = next(Path(scratch).glob("lib/python*/site-packages"))
        try:
            with zipfile.ZipFile(wheel) as archive:  # what an installation of a wheel is
                archive.extractall(site)
        except (OSError, zipfile.BadZipFile) as error:
            raise ShipError(f"{wheel} is not a wheel: {error}") from error
        (site / "torch.pth").write_text(f"{Path(torch.origin).parents[1]}\n")
        yield Installed(folder=site, python=str(Path(scratch) / "bin" / "python"))
