"""Atomic file writing: complete content or the old content, and no leftovers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from protocol.atomic_file import write_atomically


def test_a_failed_write_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk at the last moment costs neither the old content nor disk space."""
    path = tmp_path / "result.json"
    write_atomically(path, "old")

    def no_space(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, "new")
    assert "old" == path.read_text()
    assert [path] == list(tmp_path.iterdir())


def test_a_private_file_is_private_also_when_it_replaces_a_public_one(tmp_path: Path) -> None:
    """A secret key is never in a file that other users can read; other files follow the umask."""
    path = tmp_path / "keys.json"
    before = os.umask(0o022)
    try:
        write_atomically(path, b"public", sync_folder=True)
        assert 0o644 == path.stat().st_mode & 0o777
        write_atomically(path, b"secret", private=True)
        assert 0o600 == path.stat().st_mode & 0o777
    finally:
        os.umask(before)
    assert b"secret" == path.read_bytes()
