"""How long tasks of this machine have waited for a processor: the kernel's word, not a candidate's.

With it the race can tell a group that was disturbed by somebody else from one that was not.
"""

from __future__ import annotations

from pathlib import Path

SOURCE = Path("/proc/pressure/cpu")


def waited_s() -> float:
    """Return the seconds so far in which some task waited; 0 where the kernel counts none."""
    try:
        first = SOURCE.read_text(encoding="ascii").splitlines()[0]
        return int(first.rpartition("total=")[2]) / 1e6
    except (OSError, ValueError, IndexError):
        return 0.0
