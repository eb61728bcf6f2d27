"""How a preprocessed CUDA source begins: the same for all candidates, so made smaller once.

cudafe++ and cicc spend nine tenths of their time on torch's and the standard library's headers.
Where a preprocessed text begins as one that trusted code has seen, it gets that beginning without
functions' bodies (`bodies`).  g++ has to have them: what cudafe++ wrote for the beginning as it was
is kept, too, and takes the place of what it writes now.  An opening is kept only if it changed
nothing of what came out for a probe.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from actors.evaluator.fastbuild.nvcc_steps import NvccSteps
from actors.evaluator.fastbuild.precompiled_headers import digest
from protocol.values import Value

END_MARK = "/stark/common_end.h"
ENCODING = "utf-8"
_ANY_SOURCE = "/stark/candidate.cu"  # stands for the file that the text came from
_LEAN, _WRITTEN = "lean.ii", "written.cpp"


def split_preamble(text: str) -> tuple[str, str] | None:
    """Return the part of a text that is the same for all candidates, and the rest."""
    mark = text.find(f'{END_MARK}"')
    if mark < 0:
        return None
    start = text.rfind("\n#", 0, mark) + 1
    return text[:start], text[start:]


def read_text(file: Path) -> str:
    """Return what a compiler wrote to `file`."""
    return file.read_text(encoding=ENCODING, errors="surrogateescape")


def write_text(file: Path, text: str) -> None:
    """Let a compiler find `text` in `file`."""
    file.write_text(text, encoding=ENCODING, errors="surrogateescape")


class NvccHalf(Value, frozen=True, kw_only=True):
    """One half of nvcc's work: its preprocessed text, and who parses that."""

    text: str  # the name of the step
    parser: str
    templates: bool  # whether those, too, are only declarations for it


# cicc makes code of templates that others' templates call.  cudafe++ writes what it reads.
DEVICE_HALF = NvccHalf(text="device text", parser="cicc", templates=False)
HOST_HALF = NvccHalf(text="host text", parser="cudafe++", templates=True)


class Preamble(Value, frozen=True, kw_only=True):
    """One that is known."""

    folder: str

    def replace(self, file: Path, source: str, rest: str) -> None:
        """Let `file` begin with it."""
        write_text(file, read_text(Path(self.folder) / _LEAN).replace(_ANY_SOURCE, source) + rest)

    @property
    def written(self) -> str:
        """What the parser writes for it as it was."""
        return read_text(Path(self.folder) / _WRITTEN)


class PreambleCache:
    """Those in one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def _place(self, half: NvccHalf, steps: NvccSteps, text: str, source: str) -> Path:
        flags = [*steps.flags(half.text), *steps.flags(half.parser)]
        return self.root / digest(half, flags, text.replace(source, _ANY_SOURCE))

    def find(self, half: NvccHalf, steps: NvccSteps, text: str, source: str) -> Preamble | None:
        """Return what to begin with instead of `text`, made from the file `source`."""
        folder = self._place(half, steps, text, source)
        return Preamble(folder=str(folder)) if (folder / _LEAN).exists() else None

    def store(
        self, half: NvccHalf, steps: NvccSteps, text: str, source: str, *, lean: str, written: str
    ) -> None:
        """Keep `lean` for `text`, and what the parser wrote for that."""
        folder = self._place(half, steps, text, source)
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in ((_WRITTEN, written), (_LEAN, lean.replace(source, _ANY_SOURCE))):
            part = folder / f".{name}.{os.getpid()}-{threading.get_ident()}"
            write_text(part, content)
            part.replace(folder / name)

    def remove_unfinished(self) -> None:
        """Remove what makers that were killed left; for the only maker at work."""
        for part in self.root.glob("*/.*"):
            part.unlink(missing_ok=True)
