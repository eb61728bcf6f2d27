"""A full disk under the judge: no candidate is blamed for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.evaluator.room import LEAST_BYTES, NoRoom, Room
from protocol.values import Word

FULL = "fatal error: error writing to /tmp/x.s: No space left on device"


@pytest.mark.parametrize("word", [Word.COMPILE_FAILED, Word.CRASHED])
def test_a_compilers_word_for_a_full_disk_counts_where_the_disk_is_nearly_full(word: Word) -> None:
    """And where it is not, a candidate has printed it, or filled up its own folder."""
    tight = Room(Path(), lambda _path: 20 << 20)
    with pytest.raises(NoRoom, match="20 MiB"):
        tight.insist_for(word, FULL)
    tight.insist_for(word, "error: expected ';'")
    Room(Path(), lambda _path: 20 << 30).insist_for(word, FULL)


def test_nothing_is_begun_and_no_failure_believed_on_a_disk_without_room() -> None:
    """What was found out all the same stands."""
    full = Room(Path(), lambda _path: LEAST_BYTES - 1)
    for asked in (full.insist, lambda: full.insist_for(Word.CRASHED, "killed by SIGBUS")):
        with pytest.raises(NoRoom, match="no room on the disk"):
            asked()
    full.insist_for(Word.CORRECT, "")
    full.insist_for(Word.WRONG, "index 3")
