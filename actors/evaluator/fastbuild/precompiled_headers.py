"""Precompiled headers: one a compiler, set of flags and header text, made once by trusted code.

Readers need no lock: a header appears under its final name when it is whole.  A maker that was
killed leaves a file under a name that nobody reads.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
from pathlib import Path

import msgspec

from actors.evaluator.fastbuild.compiler_process import Deadline, run_compiler

HEADER = "prefix.h"
EXTENSION_NAME = "-DTORCH_EXTENSION_NAME="


class PrecompiledHeaderError(Exception):
    """A header of ours does not compile."""


def compiler_identity(compiler: str) -> str:
    """Return what tells one compiler from another and from its next version."""
    found = shutil.which(compiler)
    if found is None:
        raise PrecompiledHeaderError(f"{compiler} is not on PATH")
    path = Path(found).resolve()
    stat = path.stat()
    return f"{path}:{stat.st_size}:{stat.st_mtime_ns}"


def without_extension_name(flags: list[str]) -> list[str]:
    """Return `flags` without the one that differs from extension to extension."""
    return [flag for flag in flags if not flag.startswith(EXTENSION_NAME)]


def digest(*parts: object) -> str:
    """Return a name for all of `parts`."""
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:32]


class PrecompiledHeaders:
    """The precompiled headers in one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def _place(self, compiler: str, flags: list[str], text: str) -> Path:
        return (
            self.root
            / digest(compiler_identity(compiler), without_extension_name(flags), text)
            / HEADER
        )

    def count(self) -> int:
        """Return how many there are."""
        return sum(1 for _ in self.root.glob(f"*/{HEADER}.gch"))

    def remove_unfinished(self) -> None:
        """Remove what makers that were killed left; for the only maker at work."""
        for half in self.root.glob("*/.*"):
            half.unlink(missing_ok=True)

    def find(self, compiler: str, flags: list[str], text: str) -> Path | None:
        """Return the header to name with -include, or None when there is none for these flags."""
        header = self._place(compiler, flags, text)
        return header if header.with_name(f"{HEADER}.gch").exists() else None

    def make(self, compiler: str, flags: list[str], text: str, deadline: Deadline) -> Path:
        """Make the header for these flags if there is none; raise `PrecompiledHeaderError` if it
        can't be.
        """
        header = self._place(compiler, flags, text)
        finished = header.with_name(f"{HEADER}.gch")
        if finished.exists():
            return header
        header.parent.mkdir(parents=True, exist_ok=True)
        mark = f"{os.getpid()}-{threading.get_ident()}"
        for name, content in ((HEADER, text), ("flags.json", msgspec.json.encode(flags).decode())):
            half = header.with_name(f".{name}.{mark}")
            half.write_text(content, encoding="utf-8")
            half.replace(header.with_name(name))
        half = header.with_name(f".gch.{mark}")
        argv = [
            compiler,
            *without_extension_name(flags),
            "-x",
            "c++-header",
            str(header),
            "-o",
            str(half),
        ]
        try:
            ran = run_compiler(argv, header.parent, deadline)
            if ran.status:
                raise PrecompiledHeaderError(ran.output[-4000:])
            half.replace(finished)
        finally:
            half.unlink(missing_ok=True)
        return header
