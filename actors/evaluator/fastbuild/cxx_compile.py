"""C++ sources: torch's own command with the light headers first and a precompiled one before."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from actors.evaluator.fastbuild.headers.header_selection import candidate_header
from actors.evaluator.fastbuild.headers.header_tree import write_file
from actors.evaluator.fastbuild.headers.include_order import includes_torch_first
from actors.evaluator.fastbuild.headers.toolkit import Toolkit
from actors.evaluator.fastbuild.request.added_headers import torch_headers_for
from actors.evaluator.fastbuild.request.candidate_source import CandidateSource
from actors.evaluator.fastbuild.request.compile_commands import CompileCommand, with_folders_first
from actors.evaluator.fastbuild.request.compiler_process import CompilerRun, Deadline, run_compiler
from actors.evaluator.fastbuild.request.flag_set import canonical
from protocol.values import Value

Binding = Literal["table", "pybind"]
BINDING_DEFINES: dict[Binding, str] = {"table": "-DSTARK_TABLE", "pybind": "-DSTARK_PYBIND"}


class CxxCompilation(Value, frozen=True, kw_only=True):
    """How the compilation of one C++ source went."""

    source: str
    ran: CompilerRun
    argv: tuple[str, ...]  # the command without the precompiled header
    precompiled: bool


def precompiled_text(binding: Binding, added: tuple[str, ...]) -> str:
    """Return the text of the precompiled header."""
    names = ("stark/common.h", f"stark/{binding}.h", *sorted(added))
    return "".join(f"#include <{name}>\n" for name in names)


def _flags(
    toolkit: Toolkit, compilation: CompileCommand, binding: Binding, added: tuple[str, ...]
) -> list[str]:
    folders = toolkit.torch_folders(added)
    shared = [flag for flag in compilation.flags if not flag.startswith("-I")]
    return [*canonical(with_folders_first(tuple(shared), folders)), BINDING_DEFINES[binding]]


def precompile_header(
    toolkit: Toolkit,
    compilation: CompileCommand,
    binding: Binding,
    added: tuple[str, ...],
    deadline: Deadline,
) -> None:
    """Precompile the header that `compile_cxx` uses with these flags and added headers."""
    flags = _flags(toolkit, compilation, binding, added)
    text = precompiled_text(binding, added)
    toolkit.precompiled.make(compilation.compiler, flags, text, deadline)


def compile_cxx(
    toolkit: Toolkit,
    compilation: CompileCommand,
    source: CandidateSource,
    binding: Binding,
    others: tuple[str, ...],
    folder: Path,
    deadline: Deadline,
) -> CxxCompilation:
    """Compile `source` to the compilation's output in `folder`.

    `others`: headers added for other sources of the extension, so that one precompiled header is
    enough for all of them.
    """
    own_folder = folder / f"{Path(source.path).name}.{binding}"
    own = torch_headers_for(source.whole_code)
    added = tuple(sorted({*own, *others})) if includes_torch_first(source) else own
    write_file(own_folder / "stark/candidate.h", candidate_header(source, toolkit.index, added))
    folders = [own_folder, *toolkit.include_folders(source, added)]
    argv = [
        compilation.compiler,
        *with_folders_first(compilation.flags, folders),
        BINDING_DEFINES[binding],
    ]
    header = None
    if includes_torch_first(source):
        flags = _flags(toolkit, compilation, binding, added)
        text = precompiled_text(binding, added)
        header = toolkit.precompiled.find(compilation.compiler, flags, text)
    first = ["-include", str(header)] if header else []
    end = ["-c", source.path, "-o", str(folder / compilation.output)]
    ran = run_compiler([argv[0], *first, *argv[1:], *end], folder.parent, deadline)
    return CxxCompilation(
        source=source.path, ran=ran, argv=(*argv, source.path), precompiled=header is not None
    )
