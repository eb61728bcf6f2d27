"""C++ sources: torch's own command, with the light headers first and a precompiled one before."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from actors.evaluator.fastbuild import header_tree
from actors.evaluator.fastbuild.candidate_source import CandidateSource
from actors.evaluator.fastbuild.compile_commands import CompileCommand, with_folders_first
from actors.evaluator.fastbuild.compiler_process import CompilerRun, Deadline, run_compiler
from actors.evaluator.fastbuild.flag_set import canonical
from actors.evaluator.fastbuild.header_selection import candidate_header
from actors.evaluator.fastbuild.toolkit import Toolkit
from protocol.values import Value

Binding = Literal["table", "pybind"]
BINDINGS: tuple[Binding, ...] = ("table", "pybind")
BINDING_DEFINES: dict[Binding, str] = {"table": "-DSTARK_TABLE", "pybind": "-DSTARK_PYBIND"}
# Names in a compiler's words when a function has a type without a record.
LAYOUT_ASSERTION = re.compile(r"stark::KindOf|stark::Guarded|stark::Table")
_DIRECTIVE = re.compile(r"^\s*#\s*(\w+)\s*(.*)$", re.MULTILINE)
_LEADS = frozenset(["torch/extension.h", *header_tree.UMBRELLAS])


class CxxCompilation(Value, frozen=True, kw_only=True):
    """One compiled source: what the compiler said, and whether a precompiled header served."""

    source: str
    ran: CompilerRun
    argv: tuple[str, ...]  # the same without the precompiled header
    precompiled: bool


def precompiled_text(binding: Binding) -> str:
    """Return the text of the precompiled header."""
    return f"#include <stark/common.h>\n#include <stark/{binding}.h>\n"


def includes_torch_first(source: CandidateSource) -> bool:
    """Whether nothing that could change torch's headers stands before they are included."""
    for directive, rest in _DIRECTIVE.findall(source.code_with_includes):
        if directive == "include":
            if rest.strip()[1:-1] in _LEADS:
                return True
        elif directive != "pragma" or rest.strip() != "once":
            return False
    return False


def _flags(toolkit: Toolkit, compilation: CompileCommand, binding: Binding) -> list[str]:
    folders = [toolkit.folder / "light"]
    return [*canonical(with_folders_first(compilation.flags, folders)), BINDING_DEFINES[binding]]


def precompile_header(
    toolkit: Toolkit, compilation: CompileCommand, binding: Binding, deadline: Deadline
) -> None:
    """Make the header that `compile_cxx` will look for with these flags."""
    flags = _flags(toolkit, compilation, binding)
    toolkit.precompiled.make(compilation.compiler, flags, precompiled_text(binding), deadline)


def compile_cxx(
    toolkit: Toolkit,
    compilation: CompileCommand,
    source: CandidateSource,
    binding: Binding,
    place: Path,
    deadline: Deadline,
) -> CxxCompilation:
    """Compile `source` to the compilation's output under `place`."""
    own = place / f"{Path(source.path).name}.{binding}"
    header_tree.write_file(own / "stark/candidate.h", candidate_header(source, toolkit.index))
    folders = [own, *toolkit.include_folders(source)]
    argv = [
        compilation.compiler,
        *with_folders_first(compilation.flags, folders),
        BINDING_DEFINES[binding],
    ]
    ready = None
    if includes_torch_first(source):
        flags = _flags(toolkit, compilation, binding)
        ready = toolkit.precompiled.find(compilation.compiler, flags, precompiled_text(binding))
    first = ["-include", str(ready)] if ready else []
    end = ["-c", source.path, "-o", str(place / compilation.output)]
    ran = run_compiler([argv[0], *first, *argv[1:], *end], place.parent, deadline)
    return CxxCompilation(
        source=source.path, ran=ran, argv=(*argv, source.path), precompiled=ready is not None
    )
