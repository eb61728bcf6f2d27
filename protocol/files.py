"""Opening a file that a person named: never one that would be waited for without an end."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import BinaryIO

# A shell's pipe, as in `--task <(make_task)` or `--task /dev/stdin`, has somebody who writes to it.
SHELLS_OWN = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")


def open_plain(path: Path) -> BinaryIO:
    """Open a file for reading; raise OSError for a pipe, socket or device, which may never end."""
    if not (path.is_file() or path.is_dir()) and path.exists():
        shells = str(path).startswith(SHELLS_OWN) and (path.is_fifo() or path.is_socket())
        if not shells:
            raise OSError(errno.EINVAL, "it is not a plain file")
    return path.open("rb")
