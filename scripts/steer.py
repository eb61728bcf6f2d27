"""`python scripts/steer.py RUN VERB …`: send a directive to a run; `list` shows all of them.

The run obeys within a second while it is served, and otherwise when it is resumed.  Each directive
is applied once or refused with a reason, also when the coordinator is killed.  Exit status: 0 it is
submitted (with --wait: applied), 1 refused, 2 a mistake in the command, 3 not taken within --wait.
"""

from __future__ import annotations

import argparse
import getpass
import json
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a file, from anywhere

from actors.startup_packages import end_without_packages

if __name__ == "__main__":
    end_without_packages()

import msgspec

from actors.cli import OneLineParser, UsageError, exit_when_reader_closes
from actors.commands import typed_command, with_typed_commands
from actors.exit_status import ExitStatus
from actors.supervisor.reporting.run_data.run_folder_integrity import is_served
from protocol import questions
from protocol.directives import (
    Directive,
    DirectiveArguments,
    DirectiveError,
    new_directive,
    submit_directive,
    waiting_directives,
)
from protocol.run_db import RUN_DB, read_only_uri
from protocol.settings import FILE_NAME
from protocol.user_files import read_text

if TYPE_CHECKING:
    Verbs = argparse._SubParsersAction[OneLineParser]

WAIT_S = 30.0
POLL_S = 0.1
SHOWN_CHARS = 60
NODE_HELP = {
    "pin": "keep a node in the planner's window and prefer it as the parent",
    "unpin": "take a pin back",
    "boost": "grow the next attempt, or the next COUNT, from a node",
    "prune": "grow and show nothing of a node and of all below it",
    "unprune": "take a prune back",
    "reject": "let a node be neither the winner nor a parent",
}


def main(arguments: list[str] | None = None) -> int:
    """Submit what the command line says, or list; return the exit status."""
    parsed = make_parser().parse_args(arguments)
    try:
        check_run(parsed.run)
        if parsed.verb == "list":
            exit_when_reader_closes()
            return show(parsed.run, as_json=parsed.json)
        key = submit_directive(parsed.run, directive_of(parsed))
    except (DirectiveError, UsageError) as error:
        print(f"steer: {error}", file=sys.stderr)
        return ExitStatus.USAGE
    except OSError as error:
        where = error.filename or parsed.run
        print(f"steer: can't use {where}: {error.strerror}", file=sys.stderr)
        return ExitStatus.USAGE
    if parsed.wait is None:
        print(f"{key} {parsed.verb}: submitted{'' if is_served(parsed.run) else NOT_SERVED}")
        return ExitStatus.DONE
    return wait(parsed.run, key, parsed.verb, parsed.wait)


NOT_SERVED = "; the run is not served now, and takes it when it is resumed"


def make_parser() -> OneLineParser:
    """Return the parser: a subcommand for each verb."""
    parser = OneLineParser(
        prog=typed_command("steer"),
        description=with_typed_commands(__doc__),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="the run folder")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    listing = verbs.add_parser("list", help="show all directives, and questions that wait")
    listing.add_argument("--json", action="store_true", help="as JSON")
    shared = OneLineParser(add_help=False)
    shared.add_argument(
        "--wait",
        type=float,
        nargs="?",
        const=WAIT_S,
        metavar="SECONDS",
        help=f"wait until it is applied or refused, and say so ({WAIT_S:g} s at most)",
    )
    shared.add_argument("--by", default="", metavar="NAME", help="a name for the record (yours)")
    task = OneLineParser(add_help=False)
    task.add_argument("--task", default="", help="the task, in a run of several")
    _add_run_verbs(verbs, shared, task)
    _add_node_verbs(verbs, [shared, task])
    _add_text_verbs(verbs, shared, task)
    return parser


def _add_run_verbs(verbs: Verbs, shared: OneLineParser, task: OneLineParser) -> None:
    """Add the verbs about the whole run, or a whole task."""
    verbs.add_parser("pause", parents=[shared], help="lease no more work; what runs ends normally")
    verbs.add_parser("go", parents=[shared], help="end the pause")
    verbs.add_parser("finish", parents=[shared], help="begin no attempt, end with the results")
    budget = verbs.add_parser("budget", parents=[shared, task], help="change the attempts a task")
    budget.add_argument("attempts", type=int, metavar="N")
    cap = verbs.add_parser("cap", parents=[shared], help="change --max-cost")
    cap.add_argument("usd", type=float, metavar="USD")


def _add_node_verbs(verbs: Verbs, parents: list[OneLineParser]) -> None:
    """Add the verbs about one node."""
    for verb, text in NODE_HELP.items():
        node = verbs.add_parser(verb, parents=parents, help=text)
        node.add_argument("node", metavar="NODE", help="a number, or TASK/NUMBER")
        if verb == "boost":
            node.add_argument("count", type=int, nargs="?", metavar="COUNT")
        if verb == "reject":
            node.add_argument("text", metavar="REASON")


def _add_text_verbs(verbs: Verbs, shared: OneLineParser, task: OneLineParser) -> None:
    """Add the verbs that hand in a text: advice, a source, an answer."""
    advise = verbs.add_parser("advise", parents=[shared, task], help="tell the planner something")
    advise.add_argument("text", metavar="TEXT", help="'' takes the advice at this place back")
    advise.add_argument("--node", metavar="NODE", help="for this node and all below it")
    advise.add_argument("--only", action="store_true", help="for the node alone")
    inject = verbs.add_parser(
        "inject", parents=[shared, task], help="have a source of yours judged"
    )
    inject.add_argument("file", type=Path, metavar="FILE", help="defines ModelNew")
    inject.add_argument("--node", metavar="NODE", default="0", help="its parent (0, the root)")
    inject.add_argument("--note", default="", metavar="TEXT", help="a line about it")
    answer = verbs.add_parser("answer", parents=[shared], help="answer a question (--ask-person)")
    answer.add_argument("question", metavar="QUESTION", help="its name, as list shows it")
    answer.add_argument("file", type=Path, metavar="FILE", help="the reply")


def check_run(run: Path) -> None:
    """Refuse a folder that holds no run."""
    if not run.is_dir():
        raise UsageError(f"{run}: there is no such folder")
    if not (run / FILE_NAME).is_file():
        raise UsageError(f"{run} is not a run folder: it has no {FILE_NAME}")


def directive_of(parsed: argparse.Namespace) -> Directive:
    """Return the directive that the command line says."""
    task, number = getattr(parsed, "task", ""), None
    if getattr(parsed, "node", None) is not None:
        task, number = node_of(parsed.node, task)
    if getattr(parsed, "only", False) and number is None:
        raise UsageError("--only needs --node NODE")
    return new_directive(
        parsed.verb,
        task=task,
        node=number,
        arguments=arguments_of(parsed),
        by=parsed.by or user_name(),
    )


def arguments_of(parsed: argparse.Namespace) -> DirectiveArguments:
    """Return the arguments of the verb."""
    match parsed.verb:
        case "inject":
            return DirectiveArguments(source=candidate_source(parsed.file), text=parsed.note)
        case "answer":
            return DirectiveArguments(question=parsed.question, text=text_of(parsed.file))
        case "advise":
            return DirectiveArguments(text=parsed.text, scope="node" if parsed.only else None)
        case "reject":
            return DirectiveArguments(text=parsed.text)
        case "boost":
            return DirectiveArguments(count=parsed.count)
        case "budget":
            return DirectiveArguments(attempts=parsed.attempts)
        case "cap":
            return DirectiveArguments(usd=parsed.usd)
    return DirectiveArguments()


def node_of(text: str, task: str) -> tuple[str, int]:
    """Return (task, number) of `17` or `TASK/17`."""
    named, _, number = text.rpartition("/")
    if not number.isascii() or not number.isdigit() or len(number) > 9:
        raise UsageError(f"{text!r} is not a node: give its number, or TASK/NUMBER")
    if named and task and named != task:
        raise UsageError(f"{text} is a node of {named}, but --task says {task}")
    return named or task, int(number)


def candidate_source(path: Path) -> str:
    """Return the source in a file; refuse one that can't be a candidate."""
    source = text_of(path)
    if "ModelNew" not in source:
        raise UsageError(f"{path} defines no ModelNew")
    return source


def text_of(path: Path) -> str:
    """Return a file's text."""
    try:
        return read_text(path)
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text") from error
    except OSError as error:
        raise UsageError(f"can't read {path}: {error.strerror}") from error


def user_name() -> str:
    """Return the user's name; "" where the system knows none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


# --- the answer ----------------------------------------------------------------------------------


def wait(run: Path, key: str, verb: str, seconds: float) -> int:
    """Wait until a directive is applied or refused; say which, and return the exit status."""
    until = time.monotonic() + seconds
    while True:
        row = next((one for one in stored_rows(run) if one["key"] == key), None)
        if row is not None:
            made = f", attempt {row['attempt']}" if row["attempt"] is not None else ""
            reason = f": {row['reason']}" if row["reason"] else ""
            print(f"{key} {verb}: {row['state']}{made}{reason}")
            return ExitStatus.DONE if row["state"] == "applied" else ExitStatus.NEGATIVE
        if time.monotonic() > until:
            more = "; it waits for its task" if is_served(run) else NOT_SERVED
            print(f"{key} {verb}: not taken in {seconds:g} s{more}")
            return ExitStatus.STOPPED
        time.sleep(POLL_S)


def show(run: Path, *, as_json: bool) -> int:
    """Print all directives: those that were taken, and those that wait."""
    rows = [*stored_rows(run), *waiting_rows(run)]
    waiting = questions.open_questions(run)
    if as_json:
        print(json.dumps({"directives": rows, "questions": waiting}, indent=2))
        return ExitStatus.DONE
    for row in rows:
        print(line_of(row))
    for name in waiting:
        print(f"question {name} waits: {run / questions.QUESTIONS / name}.md")
    if not rows and not waiting:
        print("no directive")
    return ExitStatus.DONE


def stored_rows(run: Path) -> list[dict[str, Any]]:
    """Return the directives in `run.db`, oldest first; [] where it has none, or is not there."""
    path = run / RUN_DB
    if not path.exists():
        return []
    try:
        with closing(sqlite3.connect(read_only_uri(path), uri=True, timeout=5.0)) as database:
            database.row_factory = sqlite3.Row
            found = database.execute("SELECT * FROM directive ORDER BY id").fetchall()
    except sqlite3.OperationalError:
        return []  # of an older version, or not ready yet
    except sqlite3.DatabaseError as error:
        raise UsageError(f"{path} can't be read: {error}") from error
    return [{**dict(row), "arguments": json.loads(row["arguments"])} for row in found]


def waiting_rows(run: Path) -> Iterator[dict[str, Any]]:
    """Yield the directives that no coordinator has taken yet."""
    taken = {row["key"] for row in stored_rows(run)}
    for one in waiting_directives(run):
        if one.key in taken:
            continue
        yield {
            "key": one.key,
            "verb": one.verb,
            "task": one.task,
            "node": one.node,
            "arguments": shown_arguments(one),
            "by": one.by,
            "wanted_at": one.at,
            "state": "wanted",
            "reason": "",
            "applied_at": None,
            "attempt": None,
        }


def shown_arguments(directive: Directive) -> dict[str, Any]:
    """Return the arguments of a directive that waits, as `run.db` will show them."""
    found: dict[str, Any] = msgspec.to_builtins(directive.arguments)
    found.pop("source", None)
    if directive.verb == "answer":
        found.pop("text", None)
    return found


def line_of(row: dict[str, Any]) -> str:
    """Return one directive as a line."""
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row["wanted_at"]))
    task = row["task"]
    node = "" if row["node"] is None else f" {task}/{row['node']}" if task else f" {row['node']}"
    said = row["arguments"]
    values = [said.get(name) for name in ("attempts", "usd", "count", "question", "text")]
    shown = " ".join(str(value) for value in values if value not in (None, ""))[:SHOWN_CHARS]
    made = "" if row["attempt"] is None else f", attempt {row['attempt']}"
    reason = f": {row['reason']}" if row["reason"] else ""
    by = f" by {row['by']}" if row["by"] else ""
    text = f"{row['verb']}{node or (f' {task}' if task else '')} {shown}".rstrip()
    return f"{at}  {row['key']}  {text}{by}  {row['state']}{made}{reason}"


if __name__ == "__main__":
    sys.exit(main())
