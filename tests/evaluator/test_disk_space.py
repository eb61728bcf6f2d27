"""A full disk under the judge: no candidate is blamed for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.evaluator.sandbox.disk_space import MIN_BYTES, DiskFullError, DiskSpace
from protocol.values import Outcome

FULL = "fatal error: error writing to /tmp/x.s: No space left on device"


@pytest.mark.parametrize("word", [Outcome.COMPILE_FAILED, Outcome.CRASHED])
def test_a_compilers_word_for_a_full_disk_counts_where_the_disk_is_nearly_full(
    word: Outcome,
) -> None:
    """And where it is not, a candidate has printed it, or filled up its own folder."""
    tight = DiskSpace(Path(), lambda _path: 20 << 20)
    with pytest.raises(DiskFullError, match="20 MiB"):
        tight.require_for(word, FULL)
    tight.require_for(word, "error: expected ';'")
    DiskSpace(Path(), lambda _path: 20 << 30).require_for(word, FULL)


def test_nothing_is_begun_and_no_failure_believed_on_a_disk_without_room() -> None:
    """What was found out all the same stands."""
    full = DiskSpace(Path(), lambda _path: MIN_BYTES - 1)
    for asked in (full.require, lambda: full.require_for(Outcome.CRASHED, "killed by SIGBUS")):
        with pytest.raises(DiskFullError, match="no room on the disk"):
            asked()
    full.require_for(Outcome.CORRECT, "")
    full.require_for(Outcome.WRONG, "index 3")
