"""Scratch folders: one for each evaluator, and inside it one for each child; each is temporary.

By hand the evaluator's folder is named after its process; in a run, after its slot and incarnation.
The next evaluator that starts removes what a killed one left.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import tempfile
from pathlib import Path

PREFIX = "stark-evaluator-"
IN_RUN = "scratch"


class Scratch:
    """The scratch folder of one evaluator."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.root.mkdir(parents=True, exist_ok=True)
        self.root.chmod(0o700)

    def fresh(self, name: str) -> Path:
        """Return a new, empty folder for one child."""
        folder = self.root / f"{name}-{secrets.token_hex(4)}"
        folder.mkdir(mode=0o700, parents=True)  # a zygote removes the root when it ends
        return folder

    def remove(self, folder: Path) -> None:
        """Remove a child's folder with everything in it."""
        remove_tree(folder)

    def close(self) -> None:
        """Remove everything."""
        remove_all(self.root)


def remove_tree(top: Path) -> None:
    """Remove a folder with everything in it, however deep; entries that can't be removed stay.

    Nested folders are moved up before they are emptied.  So neither Python's stack nor the longest
    path limits the depth that can be removed.
    """
    try:
        shutil.rmtree(top)
    except FileNotFoundError:
        return
    except (OSError, RecursionError):
        _flatten(top)
        with contextlib.suppress(OSError):
            top.rmdir()


def _flatten(top: Path) -> None:
    mark, number = secrets.token_hex(8), 0
    todo = [top]
    while todo:
        folder = todo.pop()
        with contextlib.suppress(OSError):
            folder.chmod(0o700)
        try:
            entries = list(os.scandir(folder))
        except OSError:
            continue
        for entry in entries:
            with contextlib.suppress(OSError):
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.path)  # noqa: PTH108  # a Path of it may be too long
                    continue
                up = top / f"{mark}-{number}"
                number += 1
                os.chmod(entry.path, 0o700)  # noqa: PTH101  # a folder is written to when it moves
                os.rename(entry.path, up)  # noqa: PTH104
                todo.append(up)
        if folder != top:
            with contextlib.suppress(OSError):
                folder.rmdir()


def remove_all(root: Path) -> None:
    """Remove an evaluator's folder, and the run's scratch folder when it is empty then."""
    remove_tree(root)
    if root.parent.name == IN_RUN and not root.name.startswith(PREFIX):  # never a user's folder
        with contextlib.suppress(OSError):  # other evaluators' folders are still in it
            root.parent.rmdir()


def scratch_for_slot(run_dir: Path, slot: str, incarnation: str) -> Path:
    """Return the scratch folder of an actor; remove folders of its slot's earlier incarnations."""
    parent = run_dir.absolute() / IN_RUN
    for old in parent.glob(f"{slot}-*"):
        if old.name != f"{slot}-{incarnation}":
            remove_tree(old)
    return parent / f"{slot}-{incarnation}"


def scratch_for_process() -> Path:
    """Return a scratch folder for this process; remove folders of processes that are gone."""
    parent = Path(tempfile.gettempdir())
    for old in parent.glob(f"{PREFIX}*"):
        pid = old.name.removeprefix(PREFIX).partition("-")[0]  # a builds' folder adds "-…"
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            remove_tree(old)
    return parent / f"{PREFIX}{os.getpid()}"
