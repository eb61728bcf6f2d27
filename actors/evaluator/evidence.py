"""What a candidate and its compiler said, cut to what helps and cleaned.

Logs are data from hostile code: bounded, without control bytes, without paths of this machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

LOG_BYTES = 16 * 1024
ERROR_LINES = 60
CONTEXT_LINES = 4
REASON_CHARS = 400

_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[@-_]")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# "error:" of g++ and clang, "error" of nvcc, "ld: ... undefined reference", "ptxas fatal"
_ERROR = re.compile(
    r"(\berror\b\s*(#\d+(-D)?)?:|\berror:|fatal error|undefined reference|ptxas (error|fatal)|"
    r"cannot find -l|multiple definition)",
)
_PACKAGES = re.compile(r"(/[^\s:\"']*)?/(site-packages|dist-packages)/")
_PYTHON = re.compile(r"/[^\s:\"']*/(lib/python3\.\d+)/")


class Output:
    """What a child wrote to stdout and stderr: its first and its last bytes are kept."""

    def __init__(self, kept_bytes: int) -> None:
        self._each = kept_bytes // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0

    def take(self, data: bytes) -> None:
        """Take what was written now."""
        room = self._each - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        over = len(self._tail) - self._each
        if over > 0:
            self._dropped += over
            del self._tail[:over]

    def text(self) -> str:
        """Return what was kept, as text."""
        gap = f"\n[{self._dropped} bytes are left out]\n".encode() if self._dropped else b""
        return bytes(self._head + gap + self._tail).decode("utf-8", "replace")


def clean(text: str, folders: Iterable[str] = (), limit: int = LOG_BYTES) -> str:
    """Return `text` without control bytes and paths of ours, at most about `limit` characters."""
    text = _CONTROL.sub("", _ESCAPES.sub("", text).replace("\r\n", "\n").replace("\r", "\n"))
    for folder in folders:
        text = text.replace(f"{folder}/", "").replace(folder, ".")
    text = _PYTHON.sub(r"\1/", _PACKAGES.sub("", text))
    if len(text) > limit:
        half = limit // 2
        text = f"{text[:half]}\n[…]\n{text[-half:]}"
    return text.strip("\n")


def compiler_log(text: str) -> str:
    """Return the errors of a build's log, each with the lines that explain it."""
    lines = text.splitlines()
    wanted: list[int] = []
    for number, line in enumerate(lines):
        if _ERROR.search(line):
            # g++ says "In function ..." before and shows the source line and a caret after.
            first = number - 1 if number and "In " in lines[number - 1] else number
            wanted.extend(range(first, min(number + CONTEXT_LINES, len(lines))))
    chosen = sorted(set(wanted))[:ERROR_LINES]
    if not chosen:
        return "\n".join(lines[-ERROR_LINES:])
    return "\n".join(lines[number] for number in chosen)


def first_error(log: str) -> str:
    """Return the first line of `log` that names an error, or its last line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    for line in lines:
        if _ERROR.search(line):
            return line
    return lines[-1] if lines else ""


def one_line(text: str) -> str:
    """Return `text` as one bounded line."""
    line = " ".join(clean(text).split())
    return line if len(line) <= REASON_CHARS else f"{line[: REASON_CHARS - 1]}…"
