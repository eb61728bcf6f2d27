"""A candidate's text as a compiler would tokenise it: without comments and strings, by its words.

What a build needs of torch is chosen by these words, so more words are always safe.
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
_WORD = re.compile(r"[A-Za-z_]\w*")
_INCLUDE = re.compile(r'^\s*#\s*include\s*([<"][^>"\n]+[>"])', re.MULTILINE)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
DEVICE_SUFFIXES = (".cu", ".cuh")


def words(text: str) -> frozenset[str]:
    """Return every identifier in `text`."""
    return frozenset(_WORD.findall(text))


class CandidateSource(Value, frozen=True, kw_only=True):
    """One file that torch was asked to compile."""

    path: str
    text: str

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
        """The text with strings and comments blanked; the lines stay where they are."""
        return _BLANK.sub(lambda found: "\n" * found.group().count("\n") or " ", self.text)

    @property
    def code_with_includes(self) -> str:
        """The text without comments; what stands in quotes is kept."""
        return _COMMENT.sub(lambda found: "\n" * found.group().count("\n") or " ", self.text)

    @property
    def words(self) -> frozenset[str]:
        """Every identifier in the code and in what it includes."""
        return words(self.code) | words(" ".join(self.includes))

    @property
    def includes(self) -> tuple[str, ...]:
        """What it includes, with the brackets or quotes."""
        return tuple(_INCLUDE.findall(_COMMENT.sub(" ", self.text)))
