"""A full disk under the judge is not a candidate's fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.evaluator.sandbox.disk_space import MIN_BYTES, DiskFullError, DiskSpace
from protocol.values import Outcome

FULL = "fatal error: error writing to /tmp/x.s: No space left on device"


@pytest.mark.parametrize("outcome", [Outcome.COMPILE_FAILED, Outcome.CRASHED])
def test_a_compilers_message_of_a_full_disk_counts_where_the_disk_is_nearly_full(
    outcome: Outcome,
) -> None:
    """On a disk with space, a candidate printed the message or filled its own folder."""
    tight = DiskSpace(Path(), lambda _path: 20 << 20)
    with pytest.raises(DiskFullError, match="20 MiB"):
        tight.require_for(outcome, FULL)
    tight.require_for(outcome, "error: expected ';'")
    DiskSpace(Path(), lambda _path: 20 << 30).require_for(outcome, FULL)


def test_on_a_full_disk_no_evaluation_begins_and_no_failure_counts() -> None:
    """An outcome that does not depend on the disk stays valid."""
    full = DiskSpace(Path(), lambda _path: MIN_BYTES - 1)
    for check in (full.require, lambda: full.require_for(Outcome.CRASHED, "killed by SIGBUS")):
        with pytest.raises(DiskFullError, match="no room on the disk"):
            check()
    full.require_for(Outcome.CORRECT, "")
    full.require_for(Outcome.WRONG, "index 3")


def test_a_disk_without_inodes_is_full() -> None:
    """Bytes alone do not make a file: on such a disk no candidate is charged either."""
    full = DiskSpace(Path(), lambda _path: 20 << 30, lambda _path: 3)
    for check in (full.require, lambda: full.require_for(Outcome.COMPILE_FAILED, FULL)):
        with pytest.raises(DiskFullError, match="3 files are free"):
            check()
    tight = DiskSpace(Path(), lambda _path: 20 << 30, lambda _path: 500)
    tight.require()
    with pytest.raises(DiskFullError, match="500 files are free"):
        tight.require_for(Outcome.COMPILE_FAILED, FULL)
    tight.require_for(Outcome.COMPILE_FAILED, "error: expected ';'")
    DiskSpace(Path()).require()  # what the file system says is understood
