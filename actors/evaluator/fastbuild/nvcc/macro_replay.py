"""The preamble's macros without its text: preprocesses a candidate's own lines alone.

gcc opens 1,800 headers to preprocess a source with thrust.  Their text is the same for all sources
with one preamble.  What follows depends on three things that it leaves: the macros, the headers
that are included only once, and the value of __COUNTER__.  Trusted code stores these; a build then
reads the macros instead of the preamble, and empty files instead of the headers.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from actors.evaluator.fastbuild.headers.header_tree import PREAMBLE_FILE, write_file
from actors.evaluator.fastbuild.nvcc.nvcc_preamble import read_text
from actors.evaluator.fastbuild.request.compiler_process import Deadline, run_compiler

_PREAMBLE = f'-include "cuda_runtime.h" -include "{PREAMBLE_FILE}"'
_MACROS_FILE, _ONCE_FILE, _EMPTY_FOLDER = "macros.h", "once", "empty"
_MARKER = re.compile(r'^# \d+ "([^"\n]+)"', re.MULTILINE)
_ONCE = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+once\b", re.MULTILINE)
_DEFINITION = re.compile(r"#define (\w+)")
_OUTPUT = re.compile(r' -o "[^"]*"')
_COUNTED = re.compile(r"STARK_COUNTER (\d+)")


class MacroReplayError(Exception):
    """The preamble of a command can't be replayed."""


class MacroReplay:
    """What one preamble leaves, in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def preprocess(
        self, command: str, source: str, environment: Mapping[str, str], deadline: Deadline
    ) -> str | None:
        """Return the text of `source` after the preamble; None if that needs the preamble itself.

        `command` preprocesses the source with the preamble, and names its output last.
        """
        whole = shlex.split(command)[-1]
        out = Path(f"{whole}.rest")
        command = command.replace(f'"{whole}"', f'"{out}"')
        command = command.replace(_PREAMBLE, f'-include "{self.folder / _MACROS_FILE}"')
        command = command.replace(" -E ", f' -E -I "{self.folder / _EMPTY_FOLDER}" ', 1)
        ran = run_compiler(["/bin/sh", "-c", command], out.parent, deadline, environment)
        parts = split_at_source(read_text(out), source) if not ran.status else None
        if parts is None:
            return None
        once = set(read_text(self.folder / _ONCE_FILE).split("\n"))
        return None if once.intersection(map(os.path.realpath, files_in(parts[1]))) else parts[1]

    def make(
        self, command: str, source: str, environment: Mapping[str, str], deadline: Deadline
    ) -> str:
        """Store what the preamble in `command` leaves; return the preamble's text for `source`.

        Raises `MacroReplayError` where that is not possible.
        """
        if _PREAMBLE not in command:
            raise MacroReplayError("the source has no preamble")
        empty, out = self.folder / Path(source).name, self.folder / "preprocessed"
        command = _OUTPUT.sub("", command.replace(source, str(empty)))

        def output(command: str) -> str:
            argv = ["/bin/sh", "-c", f'{command} -o "{out}"']
            ran = run_compiler(argv, self.folder, deadline, environment)
            if ran.status:
                raise MacroReplayError(ran.output[-400:])
            return read_text(out)

        write_file(empty, "STARK_COUNTER __COUNTER__\n")
        parts = split_at_source(output(command), str(empty))
        counted = _COUNTED.search(parts[1]) if parts else None
        if parts is None or counted is None:
            raise MacroReplayError("the preamble has no end")
        listing = command.replace(" -E ", " -E -dM ", 1)
        macros = _difference(output(listing.replace(_PREAMBLE, "")), output(listing))
        bumps = "#if __COUNTER__\n#endif\n" * int(counted[1])
        # Macros of the system's headers: else gcc would write other line markers around their use.
        lead = "#pragma GCC system_header\n"
        write_file(self.folder / _MACROS_FILE, lead + macros + bumps)
        self._write_headers_read_once(files_in(parts[0]), _include_folders(command))
        return parts[0].replace(str(empty), source)

    def macro_names(self) -> frozenset[str]:
        """Return the names of the macros that the preamble defines."""
        return frozenset(_DEFINITION.findall(read_text(self.folder / _MACROS_FILE)))

    def _write_headers_read_once(self, files: set[str], folders: list[str]) -> None:
        """List the headers with `#pragma once` in `files`; write an empty file for each."""
        once = {
            real
            for real in map(os.path.realpath, files)
            if Path(real).is_file() and _ONCE.search(read_text(Path(real)))
        }
        for file in once:
            for folder in folders:
                name = os.path.relpath(file, folder)
                if not name.startswith("..") and _found(name, folders) == file:
                    write_file(self.folder / _EMPTY_FOLDER / name, "")
        write_file(self.folder / _ONCE_FILE, "\n".join(sorted(once)))


def split_at_source(text: str, source: str) -> tuple[str, str] | None:
    """Return what comes before the first line of `source` itself, and the rest."""
    start = text.find(f'\n# 1 "{source}"\n') + 1
    return (text[:start], text[start:]) if start else None


def files_in(text: str) -> set[str]:
    """Return the files that a preprocessed text is from."""
    return set(_MARKER.findall(text))


def _difference(before: str, after: str) -> str:
    """Return the directives that make the macros `after` of those `before`."""
    old, new = before.splitlines(), after.splitlines()
    gone = [line for line in old if line not in set(new)]
    names = [found[1] for line in gone if (found := _DEFINITION.match(line))]
    known = set(old)
    made = [line for line in new if line not in known]
    return "".join(f"{line}\n" for line in [*(f"#undef {name}" for name in names), *made])


def _include_folders(command: str) -> list[str]:
    """Return the folders that the preprocessor searches, in its order, without links."""
    argv = shlex.split(command)
    own = [argument[2:] for argument in argv if argument.startswith("-I")]
    system = [argv[at + 1] for at, argument in enumerate(argv) if argument == "-isystem"]
    return [os.path.realpath(folder) for folder in (*own, *system)]


def _found(name: str, folders: list[str]) -> str:
    """Return the file `name` in the first of `folders` that has it, without links."""
    found = (Path(folder, name) for folder in folders)
    return next((os.path.realpath(file) for file in found if file.is_file()), "")
