"""Precompiled headers: one for each compiler, flags and header text, made once by trusted code.

A header gets its final name when it is complete, so readers need no lock.  A killed maker leaves a
file under a temporary name, which is never read.
"""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import msgspec

from actors.evaluator.fastbuild.request.build_key import digest
from actors.evaluator.fastbuild.request.compiler_process import Deadline, run_compiler

HEADER = "prefix.h"
EXTENSION_NAME = "-DTORCH_EXTENSION_NAME="


class PrecompiledHeaderError(Exception):
    """A light header can't be precompiled: it does not compile, or the compiler is missing."""


def compiler_identity(compiler: str) -> str:
    """Return a text that differs between compilers and between versions of one."""
    found = shutil.which(compiler)
    if found is None:
        raise PrecompiledHeaderError(f"{compiler} is not on PATH")
    path = Path(found).resolve()
    stat = path.stat()
    return f"{path}:{stat.st_size}:{stat.st_mtime_ns}"


def without_extension_name(flags: list[str]) -> list[str]:
    """Return `flags` without the extension's name, which differs between candidates."""
    return [flag for flag in flags if not flag.startswith(EXTENSION_NAME)]


class PrecompiledHeaders:
    """The precompiled headers in one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        # Two flag sets may need one header at the same time: the second waits for the first.
        self._lock = threading.Lock()
        self._being_made: dict[Path, threading.Lock] = {}

    def _path(self, compiler: str, flags: list[str], text: str) -> Path:
        return (
            self.root
            / digest(compiler_identity(compiler), without_extension_name(flags), text)
            / HEADER
        )

    def count(self) -> int:
        """Return the number of complete precompiled headers."""
        return sum(1 for _ in self.root.glob(f"*/{HEADER}.gch"))

    def remove_unfinished(self) -> None:
        """Remove the files of killed makers; only one maker may be running."""
        for unfinished in self.root.glob("*/.*"):
            unfinished.unlink(missing_ok=True)

    def find(self, compiler: str, flags: list[str], text: str) -> Path | None:
        """Return the header for -include, or None when none was precompiled for these flags."""
        header = self._path(compiler, flags, text)
        return header if header.with_name(f"{HEADER}.gch").exists() else None

    def make(self, compiler: str, flags: list[str], text: str, deadline: Deadline) -> Path:
        """Return the header for these flags, precompiled now if it was not yet.

        Raises `PrecompiledHeaderError` when it does not compile.
        """
        header = self._path(compiler, flags, text)
        with self._lock:
            being_made = self._being_made.setdefault(header, threading.Lock())
        with being_made:
            if not header.with_name(f"{HEADER}.gch").exists():
                self._make(header, compiler, flags, text, deadline)
        return header

    def _make(
        self, header: Path, compiler: str, flags: list[str], text: str, deadline: Deadline
    ) -> None:
        finished = header.with_name(f"{HEADER}.gch")
        header.parent.mkdir(parents=True, exist_ok=True)
        maker = f"{os.getpid()}-{threading.get_ident()}"
        for name, content in ((HEADER, text), ("flags.json", msgspec.json.encode(flags).decode())):
            unfinished = header.with_name(f".{name}.{maker}")
            unfinished.write_text(content, encoding="utf-8")
            unfinished.replace(header.with_name(name))
        unfinished = header.with_name(f".gch.{maker}")
        argv = [
            compiler,
            *without_extension_name(flags),
            "-x",
            "c++-header",
            str(header),
            "-o",
            str(unfinished),
        ]
        try:
            ran = run_compiler(argv, header.parent, deadline)
            if ran.status:
                raise PrecompiledHeaderError(ran.output[-4000:])
            unfinished.replace(finished)
        finally:
            unfinished.unlink(missing_ok=True)
