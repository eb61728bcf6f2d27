"""What waits in a run's folder: directives that no coordinator has taken, questions of agents.

They are files, and so they are not in the change feed of `run.db`.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from pathlib import Path

import msgspec

from actors.supervisor.reporting.feed.feed_values import FeedDirective
from protocol.directives import (
    Directive,
    DirectiveArguments,
    waiting_directives,
    waiting_files,
)
from protocol.questions import open_questions

WANTED = "wanted"


class WaitingDirectives:
    """The directives and questions that wait, read again when their files have changed."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._files: tuple[str, ...] = ()
        self._waiting: list[FeedDirective] = []
        self.questions: tuple[str, ...] = ()

    def refresh(self) -> bool:
        """Look at the folders; return whether other directives wait than before."""
        self.questions = tuple(open_questions(self._run_dir))
        files = tuple(path.name for path in waiting_files(self._run_dir))
        if files == self._files:
            return False
        self._files = files
        self._waiting = [
            FeedDirective(
                key=directive.key,
                verb=directive.verb,
                task=directive.task,
                node=directive.node,
                arguments=msgspec.Raw(msgspec.json.encode(_without_texts(directive))),
                by=directive.by,
                wanted_at=directive.at,
                state=WANTED,
            )
            for directive in waiting_directives(self._run_dir)
        ]
        return True

    def rows(self, recorded: Container[str]) -> Iterator[msgspec.Raw]:
        """Yield what waits as JSON; what is `recorded`, by key, waits no longer."""
        for row in self._waiting:
            if row.key not in recorded:
                yield msgspec.Raw(msgspec.json.encode(row))


def _without_texts(directive: Directive) -> DirectiveArguments:
    """Return the arguments as `run.db` keeps them: without a source and without a reply."""
    is_reply = directive.verb == "answer"
    text = "" if is_reply else directive.arguments.text
    return msgspec.structs.replace(directive.arguments, source="", text=text)
