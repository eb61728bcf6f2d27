"""A package's folder is whole or not there, and what killed commands left is removed."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from actors.ship.errors import ShipError
from actors.ship.new_folder import UNLOCKED_S, new_folder, place
from scripts import ship

KILLED = """\
import os, pathlib, signal, sys
from actors.ship.new_folder import new_folder
with new_folder(pathlib.Path(sys.argv[1]), {"a.txt": "a"}):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def age(folder: Path) -> None:
    """Make folders as old as those of earlier commands."""
    for path in folder.iterdir():
        os.utime(path, (0.0, time.time() - UNLOCKED_S - 1))


def test_a_folder_gets_its_name_whole_or_is_removed(tmp_path: Path) -> None:
    """An error leaves nothing, and no folder of another program is touched."""
    out = tmp_path / "p"
    with suppress(ValueError), new_folder(out, {"a/b.txt": "b"}) as scratch:
        assert "b" == (scratch / "a" / "b.txt").read_text()
        raise ValueError
    assert [] == names(tmp_path)
    with new_folder(out, {"a/b.txt": "b"}) as scratch:
        place(scratch, out)
    assert ["p"] == names(tmp_path)
    with pytest.raises(ShipError, match="exists and is not empty"), new_folder(out, {}):
        pass


def test_what_a_killed_command_left_is_removed_by_the_next_one(tmp_path: Path) -> None:
    """Before, each kill left a hidden folder for ever; that of a command at work stays."""
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "p")], check=False)
    (left,) = names(tmp_path)
    (tmp_path / ".p.notes.new").write_text("a file of the user's")
    (tmp_path / ".q.0.new").mkdir()
    with new_folder(tmp_path / "p", {}) as at_work:
        age(tmp_path)
        with new_folder(tmp_path / "p", {}):
            assert left not in names(tmp_path)
            assert {".p.notes.new", ".q.0.new", at_work.name} < set(names(tmp_path))
    assert [".p.notes.new", ".q.0.new"] == names(tmp_path)


def test_a_full_disk_is_one_line_with_a_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such an error names no file: the line said `can't write None`."""

    def write_text(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", write_text)
    said = r"--out .*p: can't write /.*\.new: No space left"
    with pytest.raises(ShipError, match=said), new_folder(tmp_path / "p", {"a.txt": "a"}):
        pass
    assert [] == names(tmp_path)

    monkeypatch.setattr("actors.ship.stages.run", write_text)
    assert 2 == ship.main(["check", str(tmp_path)])
    assert "ship: No space left on device\n" == capsys.readouterr().err

    def copied(*_: object) -> None:
        raise shutil.Error([("a", "b", "[Errno 28] No space left on device: 'a' -> 'b'")])

    monkeypatch.setattr("actors.ship.stages.run", copied)  # before: Python's list of all files
    assert 2 == ship.main(["wheel", str(tmp_path)])
    assert "ship: [Errno 28] No space left on device: 'a' -> 'b'\n" == capsys.readouterr().err
