"""Where a compiler's first error is in the numbered source that a request shows.  Pure.

A compiler counts the lines of the file that was made for it, which begins elsewhere: its number
would name another line of the candidate.  It also quotes the line, which is found by its text.
"""

from __future__ import annotations

import re
from itertools import islice

# "main.cpp:16:23: error: …" of gcc and clang, "cuda.cu(76): error: …" of nvcc.
ERROR = re.compile(r"^\S+?(?::\d+(?::\d+)?:|\(\d+\):) (?:fatal )?error\b", re.MULTILINE)
NUMBER = re.compile(r"^\s*\d+ \|")
QUOTED_WITHIN = 3  # lines behind the error


def first_error_line(log: str, source: str) -> str:
    """Return a sentence that names the line of the first error; "" where that is not sure."""
    found = ERROR.search(log)
    if found is None:
        return ""
    lines = [line.strip() for line in source.splitlines()]
    for quoted in islice(log[found.start() :].splitlines(), 1, 1 + QUOTED_WITHIN):
        text = NUMBER.sub("", quoted).strip()
        if text and lines.count(text) == 1:
            number = lines.index(text) + 1
            return f"The compiler's first error is in line {number} of the numbered source."
    return ""
