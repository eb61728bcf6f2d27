"""The spool of directives: reads the files that wait, and removes them after the commit.

A file that is not a directive (`protocol/directives.py`) is taken, too: it is refused under its
name, so that its writer learns why, and so that it does not wait for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from protocol.directives import (
    KEY_PATTERN,
    Directive,
    DirectiveError,
    read_directive,
    waiting_files,
)

SCAN_S = 0.25  # at most one look into the folder in this time


class DirectiveSpool:
    """The spool folder of one run."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._next_scan = 0.0
        self._taken: list[Path] = []
        self._unremovable: set[Path] = set()

    def is_due(self, now: float) -> bool:
        """Whether it is time for the next look; `now`: monotonic seconds."""
        if now < self._next_scan:
            return False
        self._next_scan = now + SCAN_S
        return True

    def waiting(self) -> list[tuple[Path, Directive | DirectiveError]]:
        """Return the files that wait, with their directives, in the order of submission."""
        found = list(self._read())
        return sorted(found, key=lambda one: (_submitted_at(one[1]), one[0].name))

    def taken(self, path: Path) -> None:
        """Mark a file: its directive is in the transaction of this round."""
        self._taken.append(path)

    @property
    def has_taken(self) -> bool:
        """Whether files wait to be removed."""
        return bool(self._taken)

    def remove_taken(self) -> None:
        """Remove the files whose directives are durable now."""
        taken, self._taken = self._taken, []
        for path in taken:
            try:
                path.unlink(missing_ok=True)
            except OSError:
                self._unremovable.add(path)  # its key is known, so it has no further effect

    def _read(self) -> Iterator[tuple[Path, Directive | DirectiveError]]:
        for path in waiting_files(self._run_dir):
            if path in self._unremovable:
                continue
            try:
                yield path, read_directive(path)
            except DirectiveError as error:
                yield path, error


def key_of(path: Path) -> str:
    """Return the key of a file that is not a directive; "" where its name is not a key."""
    key = path.name.removesuffix(".json")
    return key if KEY_PATTERN.fullmatch(key) else ""


def _submitted_at(found: Directive | DirectiveError) -> float:
    return found.at if isinstance(found, Directive) else 0.0
