"""Opening a file that a person named: never one that would be waited for without an end."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import BinaryIO

# A shell's pipe, as in `--task <(make_task)` or `--task /dev/stdin`, has somebody who writes to it.
MAX_BYTES = 64 << 20  # of any file that is read whole
SHELL_DESCRIPTOR_PATHS = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")


def open_regular_file(path: Path) -> BinaryIO:
    """Open a file for reading; raise OSError for a pipe, socket or device, which may never end."""
    if not (path.is_file() or path.is_dir()) and path.exists():
        shells = str(path).startswith(SHELL_DESCRIPTOR_PATHS) and (
            path.is_fifo() or path.is_socket()
        )
        if not shells:
            raise OSError(errno.EINVAL, "it is not a plain file")
    return path.open("rb")


def read_text(path: Path, most_bytes: int = MAX_BYTES) -> str:
    """Return a file's text, lines ended as Python has it; raise OSError or UnicodeDecodeError."""
    with open_regular_file(path) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {most_bytes >> 20} MiB")
    text = content.decode("utf-8-sig")  # Windows editors begin with a mark
    return text.replace("\r\n", "\n").replace("\r", "\n")
