"""Steering: takes what a person asks from the spool, and applies or refuses it exactly once.

The row of a directive, its effects and its event are in one transaction; the file is removed after
the commit.  Killed in between, the next coordinator finds the file again and knows its key.  A
directive that is refused has no effect at all: everything is checked before anything is written.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from actors import failpoints
from actors.coordinator.directive_verbs import Applied, DirectiveRefusedError, NotYetError, Verbs
from actors.coordinator.gateway.directive_spool import DirectiveSpool, key_of
from actors.coordinator.storage.directive_store import DirectiveStore
from protocol.directives import MAX_REASON_CHARS, Directive, DirectiveError, one_line


class Steering:
    """The directives of one run."""

    def __init__(
        self,
        run_dir: Path,
        *,
        verbs: Verbs,
        directives: DirectiveStore,
        record_event: Callable[[str, str, str], None],
    ) -> None:
        """`record_event` takes (what, subject, detail)."""
        self._spool = DirectiveSpool(run_dir)
        self._verbs = verbs
        self._directives = directives
        self._event = record_event

    @property
    def is_paused(self) -> bool:
        """Whether a person has the run lease nothing."""
        return self._verbs.is_paused

    def take(self, now: float, *, at_once: bool = False) -> None:
        """Take the directives that wait, in their order; `now`: monotonic seconds.

        `at_once`: also when the last look was a moment ago.  A directive that has to wait for its
        task stays in the spool, and those after it that concern the task do, too.
        """
        if not self._spool.is_due(now) and not at_once:
            return
        blocked: set[str] = set()
        for path, found in self._spool.waiting():
            failpoints.hit("directive.taken")
            if isinstance(found, DirectiveError):
                self._refuse_file(path, str(found))
                continue
            task = self._verbs.named_task(found)
            if (task and task in blocked) or not self._take(found):
                blocked.add(task)
                continue
            self._spool.taken(path)
            failpoints.hit("directive.applied")

    def committed(self) -> None:
        """Remove the files of the directives that are durable now."""
        if self._spool.has_taken:
            failpoints.hit("directive.committed")
            self._spool.remove_taken()
            failpoints.hit("directive.removed")

    def _take(self, directive: Directive) -> bool:
        """Apply or refuse a directive, or do nothing for a key that is known.

        False: it has to wait.
        """
        if self._directives.has(directive.key):
            return True
        place = self._verbs.place_of(directive)
        reason, applied = "", Applied()
        try:
            applied = self._verbs.apply(directive)
        except NotYetError:
            return False
        except DirectiveRefusedError as refused:
            reason = str(refused)
        # A refused directive is shown with the task that it was meant for.
        task = applied.task if not reason else self._verbs.named_task(directive)
        named = replace(directive, task=task or directive.task)
        self._directives.add(
            named, reason=reason, at=time.time(), place=place, attempt=applied.attempt
        )
        self._record(named, reason, applied)
        return True

    def _record(self, directive: Directive, reason: str, applied: Applied) -> None:
        number = directive.node if applied.attempt is None else applied.attempt
        subject = directive.task if number is None else f"{directive.task}/{number}"
        by = f" by {directive.by}" if directive.by else ""
        detail = f"{directive.verb} refused{by}: {reason}" if reason else applied.detail
        self._event("directive", subject, detail if reason else f"{detail}{by}")

    def _refuse_file(self, path: Path, error: str) -> None:
        reason = one_line(error)[:MAX_REASON_CHARS]
        key = key_of(path)
        if key and not self._directives.has(key):
            self._directives.add_unreadable(key, reason, time.time())
        self._event("directive", "", f"{one_line(path.name)} refused: {reason}")
        self._spool.taken(path)
