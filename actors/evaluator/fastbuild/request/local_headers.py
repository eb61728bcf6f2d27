"""A candidate's own headers: the files that its sources include from its own folders.

The compiler searches the folder of the including file for `"name"`, and then the candidate's
include folders for both spellings, so this module does the same.  Their text counts like that of
the source itself: for the names that choose torch's headers, for a build's key and for errors.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from msgspec import structs

from actors.evaluator.fastbuild.request.candidate_source import (
    CandidateSource,
    LocalHeader,
    includes_in,
)

MAX_HEADERS = 200
MAX_BYTES = 4_000_000
# An include whose file a macro names: what it includes is not known here.
_COMPUTED = re.compile(r"^\s*#\s*include(?:_next)?\b(?!\s*[<\"])|^\s*#\s*include_next\b", re.M)
_SYSTEM_HEADERS = Path("/usr/include")
# The first folders in the names of headers that torch, CUDA or fast builds own.
_TAKEN = frozenset(
    [
        *("ATen", "c10", "caffe2", "torch", "pybind11", "stark", "fmt"),
        *("cub", "thrust", "cuda", "nv", "cccl", "crt", "cooperative_groups"),
    ]
)


class LocalHeadersError(Exception):
    """The candidate's own headers can't be followed, or they hide torch's or the system's."""


def with_local_headers(source: CandidateSource, include_folders: Sequence[str]) -> CandidateSource:
    """Return `source` with its own headers; raises `LocalHeadersError` for torch's own build."""
    folders = [Path(folder).absolute() for folder in include_folders]
    for folder in folders:
        _check_folder(folder)
    found: dict[Path, LocalHeader] = {}
    waiting = [(Path(source.path), source.text)]
    while waiting:
        path, text = waiting.pop()
        if _COMPUTED.search(text):
            raise LocalHeadersError("a macro names a file that it includes")
        for spelled in includes_in(text):
            header = _found(spelled, path.parent, folders)
            if header is None:
                continue
            if header in found:
                known = found[header]
                found[header] = structs.replace(known, spelled=(*known.spelled, spelled))
                continue
            content = _read(header)
            found[header] = LocalHeader(path=str(header), text=content, spelled=(spelled,))
            if len(found) > MAX_HEADERS:
                raise LocalHeadersError(f"it has more than {MAX_HEADERS} headers of its own")
            waiting.append((header, content))
    return structs.replace(source, headers=tuple(found.values()))


def _found(spelled: str, including: Path, folders: list[Path]) -> Path | None:
    """Return the candidate's file that an include finds; None if it is not the candidate's."""
    name = spelled[1:-1]
    searched = [including, *folders] if spelled.startswith('"') else folders
    for folder in searched:
        path = folder / name
        if path.is_file():
            if Path(name).parts[0] in _TAKEN or (_SYSTEM_HEADERS / name).exists():
                raise LocalHeadersError(f"it has a file of its own for {name}")
            return path.resolve()
    return None


def _check_folder(folder: Path) -> None:
    """Raise `LocalHeadersError` if torch's or the system's headers may find files in `folder`."""
    if not folder.is_dir():
        return
    for entry in folder.iterdir():
        if entry.name in _TAKEN or (not entry.suffix and entry.is_file()):
            raise LocalHeadersError(f"its include folder has {entry.name}")
        if entry.is_file() and (_SYSTEM_HEADERS / entry.name).exists():
            raise LocalHeadersError(f"its include folder has {entry.name}")


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise LocalHeadersError(f"its header {path.name} is too large")
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise LocalHeadersError(f"its header {path.name} can't be read: {error.strerror}") from None
