"""What ptxas says of code that it compiled and that loses time, such as products in a row.

Pure.  A remark comes from the candidate's own build, so it is read as text of a fixed form; nothing
in a verdict depends on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

MAX_REMARKS = 4
_LOSS = re.compile(r"Potential Performance Loss: (.{1,300})")
_MANGLED = re.compile(r"'_Z(\w+)'")
_PART = re.compile(r"\d+")
_REMARK = re.compile(r"[\w .,:'()-]{1,200}")


def remarks_in(output: str) -> tuple[str, ...]:
    """Return the remarks of a compiler's output, each once, with plain names of functions."""
    found = (_MANGLED.sub(lambda match: _plain(match[1]), one) for one in _LOSS.findall(output))
    return known_remarks(dict.fromkeys(found))


def known_remarks(texts: Iterable[str]) -> tuple[str, ...]:
    """Return those of some texts that have the form of a remark."""
    return tuple(one for one in texts if _REMARK.fullmatch(one))[:MAX_REMARKS]


def _plain(mangled: str) -> str:
    """Return the last name of a mangled one: "gemm" of "4gemm14CUtensorMap" and "N1a4gemmEv"."""
    name, rest = mangled, mangled.removeprefix("N")
    is_nested = rest != mangled
    while match := _PART.match(rest):
        name = rest[match.end() : match.end() + int(match.group())]
        rest = rest[match.end() + int(match.group()) :]
        if not is_nested:
            break
    return name
