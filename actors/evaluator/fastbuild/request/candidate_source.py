"""A candidate's C++ or CUDA text: its code without comments and strings, and its identifiers.

The identifiers choose what a build gets of torch's headers, so too many of them are always safe.
"""

from __future__ import annotations

import re
from pathlib import Path

from protocol.values import Value

_BLANK = re.compile(
    r'R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"'  # a raw string
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'(?:\\.|[^'\\\n])'"
    r"|//[^\n]*|/\*.*?\*/",
    re.DOTALL,
)
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_INCLUDE = re.compile(r'^\s*#\s*include\s*([<"][^>"\n]+[>"])', re.MULTILINE)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
DEVICE_SUFFIXES = (".cu", ".cuh")


def includes_in(text: str) -> tuple[str, ...]:
    """Return the files that `text` includes, each with its brackets or quotes."""
    return tuple(_INCLUDE.findall(_COMMENT.sub(" ", text)))


def _blanked(text: str) -> str:
    return _BLANK.sub(lambda found: "\n" * found.group().count("\n") or " ", text)


def identifiers_in(text: str) -> frozenset[str]:
    """Return every identifier in `text`."""
    return frozenset(_IDENTIFIER.findall(text))


class LocalHeader(Value, frozen=True, kw_only=True):
    """A header of the candidate's own that one of its sources includes, directly or not."""

    path: str
    text: str
    spelled: tuple[str, ...]  # the includes that found it, with their brackets or quotes


class CandidateSource(Value, frozen=True, kw_only=True):
    """One file that torch was asked to compile."""

    path: str
    text: str
    headers: tuple[LocalHeader, ...] = ()  # its own headers, found by `local_headers`

    @classmethod
    def read(cls, path: str) -> CandidateSource:
        """Read the file at `path`."""
        file = Path(path).absolute()
        return cls(path=str(file), text=file.read_text(encoding="utf-8", errors="surrogateescape"))

    @property
    def is_cuda(self) -> bool:
        return self.path.endswith(DEVICE_SUFFIXES)

    @property
    def code(self) -> str:
        """The text with strings and comments blanked; every line keeps its number."""
        return _blanked(self.text)

    @property
    def code_with_includes(self) -> str:
        """The text with comments blanked and strings kept; every line keeps its number."""
        return _COMMENT.sub(lambda found: "\n" * found.group().count("\n") or " ", self.text)

    @property
    def whole_code(self) -> str:
        """The code of the source and of its own headers."""
        return "\n".join([self.code, *(_blanked(header.text) for header in self.headers)])

    @property
    def identifiers(self) -> frozenset[str]:
        """Every identifier in the whole code and in the names of the included files."""
        return identifiers_in(self.whole_code) | identifiers_in(" ".join(self.includes))

    @property
    def includes(self) -> tuple[str, ...]:
        """The included files that are not the candidate's own, each with its brackets or quotes."""
        own = {spelled for header in self.headers for spelled in header.spelled}
        texts = (self.text, *(header.text for header in self.headers))
        found = [named for text in texts for named in includes_in(text)]
        return tuple(named for named in dict.fromkeys(found) if named not in own)
