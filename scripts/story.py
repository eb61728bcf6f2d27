"""`python scripts/story.py RUN NODE`: the history of one attempt, from the events in `run.db`.

NODE is `3`, or `task/3` in a run of several tasks.  Each event is one line: the selection of the
node to grow and its state then, each lease with its slot and its end, each reply that was bought,
and the judge's verdicts, first look and confirmation.  A candidate's times are on the clock of its
reference, as everywhere.  The script only reads, also while the run goes on.
"""

from __future__ import annotations

import re
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parents[1]
CONFIRMED = 1  # `node.confirmed` of a node that was judged again
MAX_DIGITS = 18  # of a number that fits into an SQLite column
ENDINGS = {
    "lost": "lost, its process died",
    "cut": "lost with its whole machine",
    "expired": "expired without a heartbeat",
    "silent": "expired, but its worker reported again",
    "dismissed": "revoked, its peer was refused",
    "missed": "lost on the way, it never arrived",
    "returned": "handed back undone",
}


# The remark in a second request (`prompts/again.md`), which ends it.
UNUSABLE = re.compile(r"\n\[user\]\n\nThat answer can't be used: (.*)\.\n\n[^\n]*\n*\Z")


class StoryUnavailableError(Exception):
    """The attempt that was asked for does not exist; one line."""


@dataclass(frozen=True, order=True)
class StoryEvent:
    """One event of the attempt's history."""

    at: float  # wall clock
    order: int  # among events of one moment
    text: str


def main(arguments: list[str] | None = None) -> int:
    """Print the story; return the exit status."""
    sys.path.insert(0, str(ROOT))  # works from a checkout that was never installed
    from actors.startup_packages import end_without_packages

    end_without_packages()
    from actors.cli import OneLineParser, exit_when_reader_closes
    from actors.commands import typed_command, with_typed_commands
    from actors.exit_status import ExitStatus

    parser = OneLineParser(prog=typed_command("story"), description=with_typed_commands(__doc__))
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument("node", metavar="NODE", help="a node's number, or TASK/NUMBER")
    parsed = parser.parse_args(arguments)
    exit_when_reader_closes()
    try:
        with closing(_open(parsed.run)) as run:
            for line in story(run, parsed.run, parsed.node):
                print(line)
    except (StoryUnavailableError, OSError, ValueError, sqlite3.DatabaseError) as error:
        print(f"story: {' '.join(str(error).split())}", file=sys.stderr)
        return ExitStatus.USAGE
    return 0


def story(run: sqlite3.Connection, folder: Path, node: str) -> Iterator[str]:
    """Yield the lines of one attempt's story; raise StoryUnavailableError with one line."""
    task, number = _resolve_node(run, folder, node)
    events = sorted(
        [*_selection(run, task, number), *_leases(run, task, number), *_calls(run, task, number),
         *_edits(run, task, number),
         *_late(run, task, number), *_record(run, task, number), *_directives(run, task, number)]
    )  # fmt: skip
    if not events:
        raise StoryUnavailableError(f"{folder}: nothing has happened to {task}/{number} yet")
    begun_at = previous_at = events[0].at
    yield f"{task}/{number}"
    for event in events:
        elapsed, step = event.at - begun_at, f"+{event.at - previous_at:.3f}"
        yield f"{elapsed:>10.3f} s  {step:>9}  {event.text}"
        previous_at = event.at


def _open(folder: Path) -> sqlite3.Connection:
    from actors.supervisor.reporting.run_data import run_folder_integrity

    run_folder_integrity.check_readable(folder)
    return run_folder_integrity.open_read_only(folder)


def _resolve_node(run: sqlite3.Connection, folder: Path, node: str) -> tuple[str, int]:
    tasks = [name for (name,) in run.execute("SELECT name FROM task ORDER BY rowid")]
    name, _, text = node.rpartition("/")
    if not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS):
        raise StoryUnavailableError(f"expected a node's number or TASK/NUMBER, got {node!r}")
    if not name and len(tasks) != 1:
        raise StoryUnavailableError(
            f"several tasks: name one, such as {tasks[0] if tasks else 'task'}/{text}"
        )
    task, number = name or tasks[0], int(text)
    if task not in tasks:
        raise StoryUnavailableError(f"{folder} has no task {task!r}: it has {', '.join(tasks)}")
    query = "SELECT COUNT(*) FROM attempt WHERE task = ? AND number = ?"
    if number and not run.execute(query, (task, number)).fetchone()[0]:
        (last,) = run.execute("SELECT MAX(number) FROM attempt WHERE task = ?", (task,)).fetchone()
        raise StoryUnavailableError(f"{task} has no attempt {number}: the last one is {last or 0}")
    return task, number


def _selection(run: sqlite3.Connection, task: str, number: int) -> Iterator[StoryEvent]:
    """Yield the selection of the parent, with its rank among the nodes of that moment."""
    query = "SELECT at, detail FROM event WHERE what = 'selected' AND subject = ?"
    for at, detail in run.execute(query, (f"{task}/{number}",)):
        parent = _parent(run, task, number)
        outcome, rank, count = _rank_at(run, task, parent, at)
        yield StoryEvent(at, 0, f"selected {detail}: {outcome}{rank}, of {count} nodes then")


def _parent(run: sqlite3.Connection, task: str, number: int) -> int:
    query = "SELECT parent FROM attempt WHERE task = ? AND number = ?"
    return int(run.execute(query, (task, number)).fetchone()[0])


def _rank_at(run: sqlite3.Connection, task: str, node: int, at: float) -> tuple[str, str, int]:
    """Return a node's outcome, its rank as text, and the number of nodes at `at`."""
    rows = run.execute(
        "SELECT number, word, score_us FROM node WHERE task = ? AND at <= ? ORDER BY id", (task, at)
    ).fetchall()
    by_number = {number: (outcome, score) for number, outcome, score in rows}
    outcome, own_score = by_number.get(node, ("not recorded", None))
    if own_score is None:
        return outcome, "", len(rows)
    better = sum(score is not None and score < own_score for _, _, score in rows)
    rank = ", the best" if not better else f", {better} were better"
    return ("the reference" if node == 0 else outcome), rank, len(rows)


def _leases(run: sqlite3.Connection, task: str, number: int) -> Iterator[StoryEvent]:
    query = (
        "SELECT epoch, work, slot, granted, ended, outcome, running FROM lease"
        " WHERE work LIKE ? ESCAPE '\\' ORDER BY epoch"
    )
    for epoch, work, slot, granted, ended, outcome, ran in run.execute(
        query, (_work_pattern(task, number),)
    ):
        stage = work.rpartition("/")[2]
        yield StoryEvent(granted, 1, f"{stage} leased to {slot} (lease {epoch})")
        if ended is None:
            continue
        ending = ENDINGS.get(outcome, outcome)
        cause = _cause(run, slot, ended) if outcome == "lost" else ""
        ending += f" ({cause})" if cause else ""
        charge = ", charged to the candidate" if ran and outcome in ("lost", "expired") else ""
        text = f"{stage} done by {slot}" if outcome == "done" else f"{stage} by {slot}: {ending}"
        yield StoryEvent(ended, 3, f"{text}{charge}, after {ended - granted:.3f} s")


def _cause(run: sqlite3.Connection, slot: str, at: float) -> str:
    """Return how the process in a slot ended, within 5 s of that time."""
    query = (
        "SELECT detail FROM event WHERE what = 'lost' AND subject = ? AND ABS(at - ?) < 5"
        " ORDER BY ABS(at - ?) LIMIT 1"
    )
    row = run.execute(query, (slot, at, at)).fetchone()
    return str(row[0]) if row else ""


def _calls(run: sqlite3.Connection, task: str, number: int) -> Iterator[StoryEvent]:
    query = (
        "SELECT work, role, model, stop, input_tokens, cached_tokens, output_tokens, usd, seconds,"
        " at, substr(request, -2000) FROM call WHERE work LIKE ? ESCAPE '\\' ORDER BY id"
    )
    for work, role, model, stop, read, cached, written, usd, seconds, at, end in run.execute(
        query, (_work_pattern(task, number),)
    ):
        unusable = UNUSABLE.search(end)
        if unusable is not None:
            text = f"{work.rpartition('/')[2]} reply can't be used, asked again: {unusable[1]}"
            yield StoryEvent(at - seconds, 2, text)
        price = "price unknown" if usd is None else f"{usd:.4f} USD"
        stage = work.rpartition("/")[2]
        if stop == "lost":
            text = f"{stage} call of the {role} lost: {model}, counted at its maximum, {price}"
            yield StoryEvent(at, 2, text)
            continue
        yield StoryEvent(
            at,
            2,
            f"{stage} reply bought by the {role}: {model}, {read:,} tokens in ({cached:,} cached),"
            f" {written:,} out, {price}, {seconds:.3f} s, {stop}",
        )


def _edits(run: sqlite3.Connection, task: str, number: int) -> Iterator[StoryEvent]:
    """Yield what the answer changed in the parent's source, and the file that it made."""
    import msgspec

    from protocol.values import Candidate

    query = (
        "SELECT candidate, (SELECT MAX(at) FROM call WHERE work IN (?, ?, ?)) FROM attempt"
        " WHERE task = ? AND number = ? AND candidate IS NOT NULL"
    )
    works = [f"{task}/{number}/{stage}" for stage in ("write", "repair", "solve")]
    for blob, at in run.execute(query, (*works, task, number)):
        candidate = msgspec.msgpack.decode(blob, type=Candidate)
        if at is None or not candidate.edits:
            continue
        parent = _parent(run, task, number)
        lines = candidate.source.count("\n")
        text = f"answered as {len(candidate.edits)} edits of node {parent}, a file of {lines} lines"
        yield StoryEvent(at, 3, "; ".join([text, *candidate.edits]))


def _late(run: sqlite3.Connection, task: str, number: int) -> Iterator[StoryEvent]:
    query = (
        "SELECT at, subject FROM event WHERE what = 'late result' AND subject LIKE ? ESCAPE '\\'"
    )
    for at, subject in run.execute(query, (_work_pattern(task, number),)):
        yield StoryEvent(
            at, 4, f"{subject.rpartition('/')[2]} result came too late and was not accepted"
        )


def _record(run: sqlite3.Connection, task: str, number: int) -> Iterator[StoryEvent]:
    """Yield the verdict of the first look, and of the confirmation where there was one."""
    query = "SELECT at, verdict, score_us, confirmed FROM node WHERE task = ? AND number = ?"
    for at, blob, score_us, confirmed in run.execute(query, (task, number)):
        # A person's rejection, which `_directives` tells, has replaced the judge's verdict.
        judged = _judged(run, task, number, "rejection")
        blob, score_us = judged or (blob, score_us)
        first_look = _judged(run, task, number, "first_look") if confirmed else None
        first_blob, first_us = first_look or (blob, score_us)
        label = "first look" if number else ""
        yield StoryEvent(at, 5, f"recorded {_verdict_text(first_blob, first_us, label)}")
        yield from (StoryEvent(at, 5, line) for line in _variant_lines(first_blob))
        if not confirmed:
            continue
        confirmed_at = _last_end(run, f"{task}/{number}/confirm") or at
        if confirmed == CONFIRMED:
            text = f"judged again: {_verdict_text(blob, score_us, 'confirmed')}"
            yield StoryEvent(confirmed_at, 6, text)
        else:
            text = "could not be judged again: the first look is not confirmed"
            yield StoryEvent(confirmed_at, 6, text)


def _judged(
    run: sqlite3.Connection, task: str, number: int, table: Literal["rejection", "first_look"]
) -> tuple[bytes, float] | None:
    """Return an earlier verdict of a node, and its score; None where there is none."""
    query = f"SELECT verdict, score_us FROM {table} WHERE task = ? AND number = ?"  # noqa: S608
    try:
        row: tuple[bytes, float] | None = run.execute(query, (task, number)).fetchone()
    except sqlite3.OperationalError:
        return None  # a run of an older version, which did not store them
    return row


def _directives(run: sqlite3.Connection, task: str, number: int) -> Iterator[StoryEvent]:
    """Yield what a person asked about this node, and the run's answer."""
    query = "SELECT at, detail FROM event WHERE what = 'directive' AND subject = ?"
    for at, detail in run.execute(query, (f"{task}/{number}",)):
        yield StoryEvent(at, 7, f"a person's directive: {detail}")


def _last_end(run: sqlite3.Connection, work: str) -> float | None:
    (at,) = run.execute("SELECT MAX(ended) FROM lease WHERE work = ?", (work,)).fetchone()
    return None if at is None else float(at)


def _variant_lines(blob: bytes) -> list[str]:
    import msgspec

    from protocol.values import Verdict
    from protocol.variant_lines import variant_lines

    return variant_lines(msgspec.msgpack.decode(blob, type=Verdict))


def _verdict_text(blob: bytes, score_us: float | None, label: str) -> str:
    """Return a verdict as text; its time is on the clock of the task's reference."""
    import msgspec

    from actors.supervisor.reporting.run_data import formatting
    from protocol.values import Verdict

    verdict = msgspec.msgpack.decode(blob, type=Verdict)
    spent = verdict.seconds
    parts = [str(verdict.verdict), formatting.speedup(verdict)]
    parts.append(formatting.duration(score_us) if score_us is not None else "")
    parts.append(label if verdict.is_correct else "")
    parts.append("the module itself" if verdict.is_renamed_reference else "")
    parts.append(f"in {verdict.stage}" if verdict.stage else "")
    stages = f"build {spent.build:.2f} s, check {spent.check:.2f} s, time {spent.time:.2f} s"
    reason = f": {' '.join(verdict.reason.split())}" if verdict.reason else ""
    return f"{', '.join(part for part in parts if part)} ({stages}){reason}"


def _work_pattern(task: str, number: int) -> str:
    plain = task.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")
    return f"{plain}/{number}/%"


if __name__ == "__main__":
    sys.exit(main())
