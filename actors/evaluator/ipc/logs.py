"""The output of a candidate and its compiler, cut to the useful part and cleaned.

Logs are data from hostile code.  They are bounded, and free of control bytes and of paths of this
machine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

LOG_BYTES = 16 * 1024
COMPILER_CHARS = 4096
MAX_ERRORS = 12
EXCERPT_LINES = 5  # the source line, a caret, a proposed change
TAIL_LINES = 40
REASON_CHARS = 400

_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[@-_]")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# "error:" of g++ and clang, "error" of nvcc, "ld: ... undefined reference", "ptxas fatal"
_ERROR = re.compile(
    r"(\berror\b\s*(#\d+(-D)?)?:|\berror\s*:|fatal error|undefined reference|ptxas fatal|"
    r"cannot find -l|multiple definition)",
)
# Lines that only repeat that there were errors: ninja, collect2, torch, nvcc's count.
_REPEATED = re.compile(
    r"ld returned \d+ exit status|^FAILED:|\bError building extension\b|error: command|"
    r"^\d+ errors? detected|^ninja: build stopped|^\[\d+/\d+\] "
)
# Lines before an error: where the compiler was, and which line of the candidate led there.
_CONTEXT = re.compile(
    r"\bIn (?:static |member |lambda )*\w*\s?(?:function|instantiation|constructor)"
)
_REQUIRED = re.compile(r"required from here|instantiation of .{0,300} at line")
_EXCERPT = re.compile(r"^\s*(?:\d+\s*)?\||^\s+\S")
_PLACE = re.compile(r"^([^\s:(][^:(]{0,300}?)[:(](\d{1,7})\b")
# One step a character for any text: a hostile text may be a megabyte of slashes.
_PATH = re.compile(r"(?:(?<=\s-[IL])|(?<![\w./:+>-]))/[\w.+@~-][\w.+@~/-]*")
_INSTALLED = ("/site-packages/", "/dist-packages/", "/include/")
# What Python's fault handler writes of the judge's own part of a candidate's process.
_OWN_FRAMES = re.compile(
    r'^  File "(?:(?:[^"\n]*/)?(?:runner|zygote|init_process)\.py|<frozen runpy>)", '
    r"line \d+ in [^\n]*\n?"
    r"|^Extension modules: [^\n]*\n?",
    re.MULTILINE,
)
_KERNELS_OWN = ("/dev/", "/proc/", "/sys/")
_HOMES = ("/home", "/Users")


class BoundedOutput:
    """The first and the last bytes that a child wrote to stdout and stderr."""

    def __init__(self, kept_bytes: int) -> None:
        self._each = kept_bytes // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0

    def append(self, data: bytes) -> None:
        """Append what the child wrote."""
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


def clean_log(text: str, folders: Iterable[str] = (), limit: int = LOG_BYTES) -> str:
    """Return `text` without control bytes and our paths, of about `limit` characters at most."""
    text = _CONTROL.sub("", _ESCAPES.sub("", text).replace("\r\n", "\n").replace("\r", "\n"))
    for folder in folders:
        text = text.replace(f"{folder}/", "").replace(folder, ".")
    text = _PATH.sub(_shortened, text)
    if len(text) > limit:
        half = limit // 2
        text = f"{text[:half]}\n[…]\n{text[-half:]}"
    return text.strip("\n")


def without_own_frames(text: str) -> str:
    """Return a log without the judge's own frames, which the fault handler writes of a crash."""
    return _OWN_FRAMES.sub("", text).rstrip("\n")


def _shortened(found: re.Match[str]) -> str:
    """Return a path without the folders of this machine."""
    path = found[0]
    if path.startswith(_KERNELS_OWN):
        return path
    for folder in _INSTALLED:
        if folder in path:
            return path.rpartition(folder)[2]
    if "/lib/python3." in path:
        return "lib/python3." + path.rpartition("/lib/python3.")[2]
    parent, _slash, name = path.rpartition("/")
    if path == "/root" or parent in _HOMES:
        return "~"
    return name if parent else path


def compiler_log(text: str) -> str:
    """Return the first errors of a build's log, each with the lines that explain it."""
    lines = text.splitlines()
    blocks: dict[str, str] = {}
    for number, line in enumerate(lines):
        if _ERROR.search(line) and not _REPEATED.search(line):
            # Host and device pass report the same error; so do two files with one include.
            blocks.setdefault(line.strip(), "\n".join(_block(lines, number)))
    if not blocks:
        return "\n".join(lines[-TAIL_LINES:])[-COMPILER_CHARS:]
    return _first(list(blocks.values()))


def _block(lines: list[str], number: int) -> list[str]:
    """Return an error's own lines: what led there, the message, the source line under it."""
    start = max(0, number - 3)
    required = [at for at in range(start, number) if _REQUIRED.search(lines[at])]
    before = lines[required[0] : number] if required else lines[max(0, number - 1) : number]
    if not required and not (before and _CONTEXT.search(before[0])):
        before = []
    after = []
    for line in lines[number + 1 : number + 1 + EXCERPT_LINES]:
        if not _EXCERPT.search(line) or _ERROR.search(line):
            break
        after.append(line)
    return [line[:REASON_CHARS] for line in (*before, lines[number], *after)]


def _first(blocks: list[str]) -> str:
    """Return the blocks that fit, and the number of those that do not."""
    shown: list[str] = []
    room = COMPILER_CHARS - 40
    for block in blocks[:MAX_ERRORS]:
        if shown and len(block) + 1 > room:
            break
        shown.append(block[:room])
        room -= len(block) + 1
    left = len(blocks) - len(shown)
    return "\n".join(shown) + (f"\n[{left} more errors]" if left else "")


def with_own_lines(text: str, line_of: Callable[[str, int], str]) -> str:
    """Return `text` with the source line under each place that a compiler names without it.

    `line_of` gives a file's line, "" if the file is not the candidate's.  g++ shows no source line
    for "required from here", ptxas shows none at all.
    """
    lines = text.splitlines()
    shown = []
    for number, line in enumerate(lines):
        shown.append(line)
        place = _PLACE.match(line)
        follows = lines[number + 1] if number + 1 < len(lines) else ""
        if place is None or _EXCERPT.search(follows):
            continue
        if _ERROR.search(line) or _REQUIRED.search(line):
            own = line_of(place[1], int(place[2])).strip()
            if own:
                shown.append(f"{place[2]:>5} | {own[:REASON_CHARS]}")
    return "\n".join(shown)


def first_error(log: str) -> str:
    """Return the first line of `log` that names an error, or its last line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    for line in lines:
        if _ERROR.search(line) and not _REPEATED.search(line):
            return line
    return lines[-1] if lines else ""


def one_line(text: str) -> str:
    """Return `text` as one bounded line."""
    line = " ".join(clean_log(text).split())
    return line if len(line) <= REASON_CHARS else f"{line[: REASON_CHARS - 1]}…"
