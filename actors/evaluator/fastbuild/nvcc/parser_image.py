"""Images of nvcc's parsers: a process that has read the preamble, kept in a file.

With thrust, cudafe++ and cicc spend three seconds on declarations before a candidate's first line.
Trusted code lets a parser read the preamble once, pauses it there and writes its memory to a file
(`native/image_writer.cpp`).  A build maps that file into a new process, and the same parser goes on
with the candidate's text (`native/image_loader.cpp`).  An image depends on the kernel and on the
processor, so it is for one machine.
"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from actors.evaluator.fastbuild.request.build_key import digest
from actors.evaluator.fastbuild.request.build_request import compiler_in_use
from actors.evaluator.fastbuild.request.compiler_process import CompilerRun, Deadline, run_compiler

NATIVE = Path(__file__).parent / "native"
_WRITER = ("-std=c++17", "-O2", "-shared", "-fPIC")
_LOADER = (
    *("-std=c++17", "-O1", "-static", "-nostdlib", "-fno-pie", "-no-pie", "-fno-exceptions"),
    *("-fno-stack-protector", "-fcf-protection=none", "-fno-tree-loop-distribute-patterns"),
    "-Wl,-Ttext-segment=0x100000,-z,norelro,--build-id=none",
)
_LOADER_FILE, _WRITER_FILE = "image_loader", "image_writer.so"
_CAN_NOT_GO_ON = (96, 97)  # statuses of a parser without its input, of a loader without its image


class ParserImage:
    """One parser's image, in `folder`, which may have several."""

    def __init__(self, folder: Path, name: str = "image") -> None:
        self.folder = folder
        self.file = folder / name
        self.text = folder / f"{name}.text"  # what the parser has read

    def run(self, text: Path, deadline: Deadline) -> CompilerRun | None:
        """Let the parser go on in the folder of its input `text`; None if it can't go on.

        The rest of the input is in the file with ".rest" after its name; `text` is written, since
        the parser repeats a line of it below an error.
        """
        argv = [str(self.folder / _LOADER_FILE), str(self.file)]
        with text.open("wb") as whole:
            for part in (self.text, text.with_name(f"{text.name}.rest")):
                with suppress(OSError):  # the parser finds out what is missing
                    whole.write(part.read_bytes())
        try:
            ran = run_compiler(argv, text.parent, deadline)
        except OSError:  # a disk on which no program may run
            return None
        return None if ran.status < 0 or ran.status in _CAN_NOT_GO_ON else ran

    def make(
        self, command: str, text: Path, environment: Mapping[str, str], deadline: Deadline
    ) -> bool:
        """Let `command` read the file `text`, pause it and write its image; return whether it did.

        `command` names files in the folder of `text` without their folder.
        """
        if not self._make_tools(deadline):
            return False
        variables = {
            **environment,
            "LD_PRELOAD": str(self.folder / _WRITER_FILE),
            "STARK_IMAGE_INPUT": text.name,
            "STARK_IMAGE": str(self.file),
        }
        ran = run_compiler(["/bin/sh", "-c", command], text.parent, deadline, variables)
        shutil.copyfile(text, self.text)
        return not ran.status and self.file.exists()

    def _make_tools(self, deadline: Deadline) -> bool:
        for flags, name, out in (
            (_WRITER, "image_writer.cpp", _WRITER_FILE),
            (_LOADER, "image_loader.cpp", _LOADER_FILE),
        ):
            if (self.folder / out).exists():
                continue
            argv = [compiler_in_use(), *flags, str(NATIVE / name), "-o", str(self.folder / out)]
            if run_compiler(argv, self.folder, deadline).status:
                return False
        return True


@cache
def machine_identity() -> str:
    """Return what the memory of a process depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # not mounted: a loader on another machine fails, and the text is parsed
        lines = []
    kinds = {line for line in lines if line.startswith(("model name", "flags"))}
    return digest(os.uname().version, platform.machine(), sorted(kinds))
