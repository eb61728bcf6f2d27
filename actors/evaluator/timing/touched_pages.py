"""How much of shared memory a stopped process has touched, by the marks of the kernel.

The processor marks each page that a process reads, and Linux shows the marks in `smaps`.  They are
removed before a block, so what is marked in the middle of it was read since.  Nothing of that is
seen from inside.  A card's memory has no such marks, and some systems show none.
"""

from __future__ import annotations

import re
from pathlib import Path

from actors.evaluator.ipc.layout_checks import PAGE_BYTES

REFERENCED_ALONE = "1"  # what the kernel is to forget


def forget_touched(pid: int) -> bool:
    """Remove the marks of a process; return whether this system permits it."""
    try:
        Path(f"/proc/{pid}/clear_refs").write_text(REFERENCED_ALONE, encoding="ascii")
    except OSError:
        return False
    return True


def touched_bytes(pid: int, inode: int) -> int:
    """Return the bytes of the pages of a memory file that were touched, in all mappings of it.

    Huge pages are left out: one touch marks all that lies in them.
    """
    try:
        text = Path(f"/proc/{pid}/smaps").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    return touched_in(text, inode)


def read_share(touched: int, size: int) -> float:
    """Return the share of `size` bytes that was surely read, of the bytes of touched pages.

    The last page may be touched for its first bytes.
    """
    return max(0, touched - PAGE_BYTES) / size


def touched_in(smaps: str, inode: int) -> int:
    """Return the same of the text of `smaps`."""
    total = 0
    for found in re.finditer(
        rf"^[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ {inode} .*\n((?:[A-Z].*\n)+)", smaps, re.MULTILINE
    ):
        kib = dict(re.findall(r"^(\w+): +(\d+) kB", found[1], re.MULTILINE))
        if not int(kib.get("ShmemPmdMapped", "0")):
            total += int(kib.get("Referenced", "0")) << 10
    return total
