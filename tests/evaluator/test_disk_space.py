"""A full disk under the judge is never a candidate's fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.evaluator.sandbox.disk_space import MIN_BYTES, DiskFullError, DiskSpace
from protocol.values import Outcome

FULL = "fatal error: error writing to /tmp/x.s: No space left on device"


@pytest.mark.parametrize("word", [Outcome.COMPILE_FAILED, Outcome.CRASHED])
def test_a_compilers_full_disk_error_counts_if_the_disk_is_nearly_full(
    word: Outcome,
) -> None:
    """If it is not, a candidate printed the text, or filled its own folder."""
    tight = DiskSpace(Path(), lambda _path: 20 << 20)
    with pytest.raises(DiskFullError, match="20 MiB"):
        tight.require_for(word, FULL)
    tight.require_for(word, "error: expected ';'")
    DiskSpace(Path(), lambda _path: 20 << 30).require_for(word, FULL)


def test_on_a_full_disk_nothing_is_begun_and_no_failure_is_believed() -> None:
    """A verdict that a full disk can't cause is still valid."""
    full = DiskSpace(Path(), lambda _path: MIN_BYTES - 1)
    for asked in (full.require, lambda: full.require_for(Outcome.CRASHED, "killed by SIGBUS")):
        with pytest.raises(DiskFullError, match="no room on the disk"):
            asked()
    full.require_for(Outcome.CORRECT, "")
    full.require_for(Outcome.WRONG, "index 3")
