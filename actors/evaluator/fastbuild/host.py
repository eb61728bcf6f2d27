"""C++ sources: torch's own command, with the light headers first and a precompiled one before."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from actors.evaluator.fastbuild import tree
from actors.evaluator.fastbuild.commands import Compilation, with_folders_first
from actors.evaluator.fastbuild.family import canonical
from actors.evaluator.fastbuild.process import Deadline, Ran, run
from actors.evaluator.fastbuild.selection import header
from actors.evaluator.fastbuild.source import Source
from actors.evaluator.fastbuild.toolkit import Toolkit
from protocol.values import Value

Binding = Literal["table", "pybind"]
BINDINGS: tuple[Binding, ...] = ("table", "pybind")
DEFINES: dict[Binding, str] = {"table": "-DSTARK_TABLE", "pybind": "-DSTARK_PYBIND"}
# Names in a compiler's words when a function has a type without a record.
NO_RECORD = re.compile(r"stark::KindOf|stark::Guarded|stark::Table")
_DIRECTIVE = re.compile(r"^\s*#\s*(\w+)\s*(.*)$", re.MULTILINE)
_LEADS = frozenset(["torch/extension.h", *tree.UMBRELLAS])


class Unit(Value, frozen=True, kw_only=True):
    """One compiled source: what the compiler said, and whether a precompiled header served."""

    source: str
    ran: Ran
    argv: tuple[str, ...]  # the same without the precompiled header
    precompiled: bool


def prefix(binding: Binding) -> str:
    """Return the text of the precompiled header."""
    return f"#include <stark/common.h>\n#include <stark/{binding}.h>\n"


def starts_with_torch(source: Source) -> bool:
    """Whether nothing that could change torch's headers stands before they are included."""
    for directive, rest in _DIRECTIVE.findall(source.code_with_includes):
        if directive == "include":
            if rest.strip()[1:-1] in _LEADS:
                return True
        elif directive != "pragma" or rest.strip() != "once":
            return False
    return False


def _flags(toolkit: Toolkit, compilation: Compilation, binding: Binding) -> list[str]:
    folders = [toolkit.folder / "light"]
    return [*canonical(with_folders_first(compilation.flags, folders)), DEFINES[binding]]


def precompile(
    toolkit: Toolkit, compilation: Compilation, binding: Binding, deadline: Deadline
) -> None:
    """Make the header that `compile_source` will look for with these flags."""
    flags = _flags(toolkit, compilation, binding)
    toolkit.precompiled.make(compilation.compiler, flags, prefix(binding), deadline)


def compile_source(
    toolkit: Toolkit,
    compilation: Compilation,
    source: Source,
    binding: Binding,
    place: Path,
    deadline: Deadline,
) -> Unit:
    """Compile `source` to the compilation's output under `place`."""
    own = place / f"{Path(source.path).name}.{binding}"
    tree.write(own / "stark/candidate.h", header(source, toolkit.index))
    folders = [own, *toolkit.include_folders(source)]
    argv = [
        compilation.compiler,
        *with_folders_first(compilation.flags, folders),
        DEFINES[binding],
    ]
    ready = None
    if starts_with_torch(source):
        flags = _flags(toolkit, compilation, binding)
        ready = toolkit.precompiled.find(compilation.compiler, flags, prefix(binding))
    first = ["-include", str(ready)] if ready else []
    end = ["-c", source.path, "-o", str(place / compilation.output)]
    ran = run([argv[0], *first, *argv[1:], *end], place.parent, deadline)
    return Unit(
        source=source.path, ran=ran, argv=(*argv, source.path), precompiled=ready is not None
    )
