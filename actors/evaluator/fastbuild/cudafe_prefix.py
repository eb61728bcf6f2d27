"""What cudafe++ writes for every candidate alike: g++ gets it precompiled."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from actors.evaluator.fastbuild.flag_set import canonical
from actors.evaluator.fastbuild.nvcc_preamble import read_text, split_preamble, write_text
from actors.evaluator.fastbuild.nvcc_steps import NvccSteps
from protocol.values import Value


class CudafePrefix(Value, frozen=True, kw_only=True):
    """What cudafe++ writes for every candidate alike, before its own text."""

    file: str
    text: str
    rest: str
    compiler: str
    flags: tuple[str, ...]

    def replace(self, header_file: Path | None) -> None:
        """Let the file begin with the precompiled header, or with the prefix's own text."""
        lead = f'#include "{header_file}"\n' if header_file else self.text
        write_text(Path(self.file), lead + self.rest)


def host_prefix(steps: NvccSteps, scratch: Path, own: Path, source: str) -> CudafePrefix | None:
    """Return the common prefix of what cudafe++ wrote, or None when there is none."""
    words = shlex.split(steps.commands["host g++"])
    written = next((word for word in words if word.endswith(".cudafe1.cpp")), "")
    file = scratch / written
    parts = split_preamble(read_text(file))
    if parts is None:
        return None
    # The source lies elsewhere each time; the name of its file is all that the text says of it.
    prefix = re.sub(rf'"[^"\n]*{re.escape(Path(source).name)}"', '"candidate.cu"', parts[0])
    at = words.index("-o")
    flags = words[1:at] + words[at + 2 :]
    kept: list[str] = []
    rest = iter(flags)
    for word in rest:
        if word in ("-c", written):
            continue
        if word == "-x":
            next(rest)
        elif word == "-isystem":
            folder = next(rest)
            kept += [] if folder == str(own) else [word, folder]
        else:
            kept.append(word)
    return CudafePrefix(
        file=str(file),
        text=prefix,
        rest=parts[1],
        compiler=words[0],
        flags=tuple(canonical(kept)),
    )
