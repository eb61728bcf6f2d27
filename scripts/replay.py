"""`python scripts/replay.py RUN`: rebuild a run's tree from what was recorded, and compare.

The verdicts go through the pure search in the order in which they were recorded.  Each choice of a
node, each window, each seed and each request to a model must equal the stored one, and each node
must agree with its attempt.  A request that another version of the prompts wrote is not a
difference: one line counts those.  Exit status: 0 all agree, 1 something differs (a line each), 2
RUN can't be used.  Nothing is written, no model is asked and no candidate is run.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[1]
SHOWN_CHARS = 70  # characters of a line in which two requests differ

if TYPE_CHECKING:
    from actors.agents.requests.request import Request
    from actors.coordinator.replay.verify import RecordedRequest
    from protocol.settings import Settings


def main(arguments: list[str] | None = None) -> int:
    """Compare, print the differences, and return the exit status."""
    sys.path.insert(0, str(ROOT))  # works from a checkout that was never installed
    from actors.startup_packages import end_without_packages

    end_without_packages()
    from actors.cli import OneLineParser, exit_when_reader_closes
    from actors.commands import typed_command, with_typed_commands
    from actors.exit_status import ExitStatus

    parser = OneLineParser(
        prog=typed_command("replay"),
        description=with_typed_commands(__doc__),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    run = parser.parse_args(arguments).run
    exit_when_reader_closes()
    try:
        count = sum(1 for line in compare(run) if not print(line))
    except (ValueError, OSError, sqlite3.DatabaseError) as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return ExitStatus.USAGE
    print(f"{run}: {'nothing differs' if not count else f'{count} differences'}")
    return ExitStatus.NEGATIVE if count else ExitStatus.DONE


def compare(run: Path) -> Iterator[str]:
    """Yield what differs in a run, one line each; raise ValueError when it can't be read."""
    from actors.agents.requests.request_version import request_version
    from actors.coordinator.replay.verify import RunVerifier
    from actors.coordinator.storage.read_only_database import ReadOnlyDatabase
    from actors.coordinator.storage.store import Store
    from actors.supervisor.reporting.run_data import run_folder_integrity
    from actors.supervisor.reporting.run_data.formatting import counted
    from protocol import settings as settings_file

    run_folder_integrity.check_readable(run)
    settings = settings_file.read(run)
    database = ReadOnlyDatabase(run)
    others: Counter[str] = Counter()  # requests of other versions of the prompts
    try:
        for task, _, _ in Store(database).tasks():
            verifier = RunVerifier(database, task, settings)
            yield from (f"{task.name}: {reason}" for reason in verifier.differences())
            requests = 0
            for recorded in verifier.recorded_requests():
                requests += 1
                reason = request_difference(recorded, settings)
                if reason and recorded.version == request_version():
                    yield f"{recorded.work}: {reason}"
                elif reason:
                    others[recorded.version] += 1
            print(
                f"{task.name}: looked at {counted(len(verifier.nodes), 'node')},"
                f" {counted(len(verifier.decisions), 'decision')}"
                f" and {counted(requests, 'request')}"
            )
        for version, count in others.items():
            print(other_version_line(version, count))
    finally:
        database.close()


def other_version_line(version: str, count: int) -> str:
    """Return what is known of requests that this version of the prompts writes otherwise."""
    from actors.agents.requests.request_version import request_version
    from actors.supervisor.reporting.run_data.formatting import counted

    if not version:
        return (
            f"{counted(count, 'request')} not compared: this version writes other texts, and the"
            " run is too old to say which version of the prompts wrote its own"
        )
    return (
        f"{counted(count, 'request')} not compared: the prompts of this version"
        f" ({request_version()}) differ from the run's ({version})"
    )


def request_difference(recorded: RecordedRequest, settings: Settings) -> str:
    """Return how a stored request differs from the one that follows from the tree; "" if equal."""
    from actors.agents.models.replay_key import first_differing_line
    from actors.agents.requests.knowledge import RequestKnowledge
    from actors.agents.requests.styles import make_request

    knowledge = RequestKnowledge(
        kind=settings.knowledge, has_lessons=settings.lessons == "accepted"
    )
    full = make_request(recorded.message, 1, settings.prompts, knowledge)
    request: Request | None = full
    while request is not None:
        if request.render() == recorded.request:
            return ""
        # A request too long for its model was sent without its largest attempts.
        request = request.without_largest_attempt()
    line, stored, now = first_differing_line(recorded.request, full.render())
    return (
        f"its request differs from line {line} on: stored {stored.strip()[:SHOWN_CHARS]!r},"
        f" rebuilt {now.strip()[:SHOWN_CHARS]!r}"
    )


if __name__ == "__main__":
    sys.exit(main())
