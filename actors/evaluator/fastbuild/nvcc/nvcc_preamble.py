"""The preamble: the beginning that the preprocessed CUDA sources of all candidates have in common.

cudafe++ and cicc spend nine tenths of their time on torch's and the standard library's headers.
When a preprocessed text begins with a preamble that trusted code has seen, the front ends get that
preamble without function bodies (`strip_bodies`).  g++ needs the bodies: the text that cudafe++
wrote for the whole preamble is stored, too, and replaces what cudafe++ writes for the stripped one.
A stripped preamble is stored only if it changed nothing in the output for a probe.
"""

from __future__ import annotations

import os
import re
import shlex
import threading
from pathlib import Path
from typing import Literal

from actors.evaluator.fastbuild.headers.toolkit import Toolkit
from actors.evaluator.fastbuild.nvcc.nvcc_steps import DEVICE_STEPS, NvccSteps, numbered
from actors.evaluator.fastbuild.request.build_key import digest
from actors.evaluator.fastbuild.request.flag_set import canonical
from protocol.values import Value

END_MARK = "/stark/common_end.h"
ENCODING = "utf-8"
LINE_INFORMATION = ("-generate-line-info", "--generate-line-info", "-lineinfo")
ANY_SOURCE = "/stark/candidate.cu"  # replaces the path of the source in a stored text
_STRIPPED_FILE, _WRITTEN_FILE = "stripped.ii", "written.cpp"


def split_preamble(text: str) -> tuple[str, str] | None:
    """Return the preamble of a preprocessed text, and the rest; None when it has no end mark."""
    mark = text.find(f'{END_MARK}"')
    if mark < 0:
        return None
    start = text.rfind("\n#", 0, mark) + 1
    return text[:start], text[start:]


def read_text(file: Path) -> str:
    """Return the text that a compiler wrote to `file`."""
    return file.read_text(encoding=ENCODING, errors="surrogateescape")


def write_text(file: Path, text: str) -> None:
    """Write `text` to `file` for a compiler."""
    file.write_text(text, encoding=ENCODING, errors="surrogateescape")


MISSING_KERNEL = "stark_missing_kernel"
_LAUNCHER = re.compile(
    r"^(?P<head>template<(?!>)[^\n{}]*\b__wrapper__device_stub_\w+\([^\n{}]*\)) ?\{[^\n{}]*\}$",
    re.MULTILINE,
)
_LAUNCHER_HEAD = re.compile(
    r"^template<(?!>)[^\n]*\bstatic void __wrapper__device_stub_\w+\(", re.MULTILINE
)


LAMBDAS = '# 1 "nvcc_internal_extended_lambda_implementation"\n'
_WRAPPER = re.compile(
    r"^template <[^\n]*>\nstruct __nv_h?dl_wrapper_t<[^\n]*>\s*\{\n.*?^\};[ \t]*$", re.M | re.S
)
_ANONYMOUS = re.compile(r"using namespace (?P<scope>(?:::\w+)*)::(?P<name>_GLOBAL__N_\w+);")
_ANONYMOUS_NAME = re.compile(r"^#define _NV_ANON_NAMESPACE (\w+)$", re.MULTILINE)


class NvccHalf(Value, frozen=True, kw_only=True):
    """One half of nvcc's work: the step that preprocesses, and the step that parses its output."""

    kind: Literal["device", "host"]
    text: str  # the name of the step that preprocesses
    parser: str  # the name of the step that parses
    rest: tuple[str, ...] = ()  # the steps after it


HOST_HALF = NvccHalf(kind="host", text="host text", parser="cudafe++")


def device_halves(steps: NvccSteps) -> list[NvccHalf]:
    """Return the device halves of `steps`, one an architecture."""
    halves = []
    for number in range(1, steps.architectures + 1):
        text, parser, assembler = (numbered(name, number) for name in DEVICE_STEPS)
        rest = (assembler,) if assembler in steps.commands else ()
        halves.append(NvccHalf(kind="device", text=text, parser=parser, rest=rest))
    return halves


class Preamble(Value, frozen=True, kw_only=True):
    """A stored preamble."""

    folder: str

    def replace(self, file: Path, source: str, rest: str) -> None:
        """Write the stripped preamble and `rest` to `file`, for the source at the path `source`."""
        stripped = read_text(Path(self.folder) / _STRIPPED_FILE)
        write_text(file, stripped.replace(ANY_SOURCE, source) + rest)

    @property
    def written(self) -> str:
        """The text that the parser writes for the whole preamble."""
        return read_text(Path(self.folder) / _WRITTEN_FILE)


class PreambleCache:
    """The stored preambles of one toolkit."""

    def __init__(self, toolkit: Toolkit) -> None:
        self.root = toolkit.preambles_folder

    def _folder(self, half: NvccHalf, steps: NvccSteps, text: str, source: str) -> Path:
        # Line information is about the text that follows, and the preamble keeps its line numbers.
        every = (*steps.flags(half.text), *steps.flags(half.parser))
        flags = [flag for flag in every if flag not in LINE_INFORMATION]
        return self.root / digest(half.kind, flags, text.replace(source, ANY_SOURCE))

    def find(self, half: NvccHalf, steps: NvccSteps, text: str, source: str) -> Preamble | None:
        """Return the stored preamble for `text`, which was preprocessed from the file `source`."""
        folder = self._folder(half, steps, text, source)
        return Preamble(folder=str(folder)) if (folder / _STRIPPED_FILE).exists() else None

    def store(
        self,
        half: NvccHalf,
        steps: NvccSteps,
        text: str,
        source: str,
        *,
        stripped: str,
        written: str,
    ) -> None:
        """Store the preamble `text` as `stripped`, and the parser's output for the whole text."""
        folder = self._folder(half, steps, text, source)
        folder.mkdir(parents=True, exist_ok=True)
        stripped = stripped.replace(source, ANY_SOURCE)
        for name, content in ((_WRITTEN_FILE, written), (_STRIPPED_FILE, stripped)):
            unfinished = folder / f".{name}.{os.getpid()}-{threading.get_ident()}"
            write_text(unfinished, content)
            unfinished.replace(folder / name)

    def remove_unfinished(self) -> None:
        """Remove the files of killed makers; only one maker may be running."""
        for unfinished in self.root.glob("*/.*"):
            unfinished.unlink(missing_ok=True)


class CudafePrefix(Value, frozen=True, kw_only=True):
    """The text that cudafe++ writes for the preamble, and the command that compiles it."""

    file: str
    text: str
    rest: str
    compiler: str
    flags: tuple[str, ...]

    def replace(self, header: Path | None) -> None:
        """Let the file begin with the precompiled `header`, or with the prefix's own text."""
        lead = f'#include "{header}"\n' if header else self.text
        write_text(Path(self.file), lead + self.rest)


def mark_missing_kernels(written: str) -> str | None:
    """Return cudafe++'s text with an undefined function for each launch that cudafe++ did not see.

    cudafe++ writes a launcher for each kernel that it finds, as a specialisation of a template that
    launches nothing.  Where only the body of a function in the headers launches a kernel, g++ would
    take that template; now the library lacks a symbol instead.  Returns None if this nvcc writes
    such templates in another form.
    """
    body = f"{{ void {MISSING_KERNEL}(); {MISSING_KERNEL}(); }}"
    marked, count = _LAUNCHER.subn(rf"\g<head> {body}", written)
    return marked if count == len(_LAUNCHER_HEAD.findall(written)) else None


def anonymous_aliases(written: str, rest: str) -> str:
    """Return one line with the preamble's anonymous namespaces under the names that `rest` uses.

    cudafe++ names them after the module, and `written` is the text of another module.
    """
    module = _ANONYMOUS_NAME.search(rest)
    if module is None:
        return ""
    aliases = []
    for scope, name in dict.fromkeys(_ANONYMOUS.findall(written)):
        outer = [part for part in scope.split("::") if part]
        opened = "".join(f"namespace {part} {{ " for part in outer)
        closed = " }" * len(outer)
        aliases.append(f"{opened}namespace {module[1]} = {name};{closed}")
    return f"{' '.join(aliases)}\n" if aliases else ""


def lambda_wrappers(written: str, own: str) -> str | None:
    """Return what cudafe++ adds to the preamble for the extended lambdas of one source.

    For each number of variables that a lambda captures it writes specialisations of two templates.
    `own` is its output for this source's preamble, `written` that for the preamble of another
    source, which g++ gets.  Returns None if they differ in something else.
    """
    known, mine = _lambda_block(written), _lambda_block(own)
    if _WRAPPER.sub("", known).split() != _WRAPPER.sub("", mine).split():
        return None
    added = [each for each in _WRAPPER.findall(mine) if each not in known]
    return LAMBDAS + "\n".join(added) + "\n" if added else ""


def _lambda_block(text: str) -> str:
    """Return what cudafe++ writes for extended lambdas; "" without the flag for them."""
    start = text.find(LAMBDAS)
    return text[start : text.find("\n# ", start)] if start >= 0 else ""


def host_prefix(
    steps: NvccSteps,
    scratch: Path,
    own_folder: Path,
    source: str,
    own_flags: frozenset[str] = frozenset(),
) -> CudafePrefix | None:
    """Return the common prefix of cudafe++'s output in `scratch`; None when it has no end mark.

    `own_folder` has the headers of this one source, and `own_flags` name the candidate's folders,
    so the flags are returned without them.
    """
    argv = [flag for flag in shlex.split(steps.commands["host g++"]) if flag not in own_flags]
    written = next((argument for argument in argv if argument.endswith(".cudafe1.cpp")), "")
    file = scratch / written
    parts = split_preamble(read_text(file))
    if parts is None:
        return None
    # Each source is in another folder; only the name of its file is part of the prefix.
    prefix = re.sub(rf'"[^"\n]*{re.escape(Path(source).name)}"', '"candidate.cu"', parts[0])
    at = argv.index("-o")
    return CudafePrefix(
        file=str(file),
        text=prefix,
        rest=parts[1],
        compiler=argv[0],
        flags=tuple(canonical(_common_flags(argv[1:at] + argv[at + 2 :], written, own_folder))),
    )


def _common_flags(flags: list[str], written: str, own_folder: Path) -> list[str]:
    """Return `flags` without those that name files of this one source."""
    common: list[str] = []
    rest = iter(flags)
    for flag in rest:
        if flag in ("-c", written):
            continue
        if flag == "-x":
            next(rest)
        elif flag == "-isystem":
            folder = next(rest)
            common += [] if folder == str(own_folder) else [flag, folder]
        else:
            common.append(flag)
    return common
