"""Opening a file that the user named, without waiting for ever for a pipe or device."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import BinaryIO

MAX_BYTES = 64 << 20  # of any file that is read whole
# A shell's pipe, as in `--task <(make_task)` or `--task /dev/stdin`, has a writing process.
SHELL_DESCRIPTOR_PATHS = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")


def open_regular_file(path: Path) -> BinaryIO:
    """Open a file for reading; raise OSError for a pipe, socket or device, which may never end."""
    if not (path.is_file() or path.is_dir()) and path.exists():
        is_shell_pipe = str(path).startswith(SHELL_DESCRIPTOR_PATHS) and (
            path.is_fifo() or path.is_socket()
        )
        if not is_shell_pipe:
            raise OSError(errno.EINVAL, "it is not a plain file")
    return path.open("rb")


def read_text(path: Path, max_bytes: int = MAX_BYTES) -> str:
    """Return a file's text with "\\n" as line ends; raise OSError or UnicodeDecodeError."""
    with open_regular_file(path) as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {max_bytes >> 20} MiB")
    text = content.decode("utf-8-sig")  # Windows editors begin a file with a byte order mark
    return text.replace("\r\n", "\n").replace("\r", "\n")
