"""Directives: what a person asks of a run, and the spool folder through which it reaches the run.

`scripts/steer.py` and the page of `scripts/watch.py` write a directive into `RUN/directives/`; the
coordinator takes it, and records it as applied or refused in the same transaction as its effects.
The spool is durable and works while no coordinator runs.  A process that can write to the run
folder can steer the run: there is no other boundary.
"""

from __future__ import annotations

import math
import os
import re
import secrets
import stat
import time
import unicodedata
from contextlib import suppress
from pathlib import Path
from typing import Literal, get_args

import msgspec

from protocol.atomic_file import write_atomically
from protocol.frozen_struct import Value

DIRECTIVES = "directives"  # the spool, in a run folder: KEY.json
Verb = Literal[
    "pause",
    "go",
    "budget",
    "cap",
    "pin",
    "unpin",
    "boost",
    "prune",
    "unprune",
    "advise",
    "inject",
    "reject",
    "answer",
    "finish",
]
VERBS: tuple[Verb, ...] = get_args(Verb)
NODE_VERBS = ("pin", "unpin", "boost", "prune", "unprune", "reject")  # each needs a node
RUN_VERBS = ("pause", "go", "cap", "answer", "finish")  # they concern the whole run
AdviceScope = Literal["node", "subtree"]

REJECTED_BY_PERSON = "rejected by a person: "  # the beginning of such a verdict's reason

MAX_ADVICE_CHARS = 4_000
MAX_REASON_CHARS = 500
MAX_REPLY_CHARS = 1 << 20
MAX_SOURCE_CHARS = 1 << 20
MAX_NAME_CHARS = 200
MAX_BY_CHARS = 100
MAX_ATTEMPTS = 1_000_000_000
MAX_BOOST = 1_000
MAX_USD = 1e9
MAX_FILE_BYTES = 8 << 20
MAX_WAITING = 1_000  # directives in the spool at once
KEY_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,64}")
QUESTION_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,64}")
# Characters that change the order in which a terminal or a browser shows a line.
DIRECTION_MARKS = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


class DirectiveError(ValueError):
    """The directive can't be submitted; one line says why."""


class DirectiveArguments(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of all verbs; each verb reads its own."""

    attempts: int | None = None  # budget: attempts of each task, or of `task`
    usd: float | None = None  # cap: US dollars that model calls may take together
    count: int | None = None  # boost: how many of the next attempts; None: 1
    text: str = ""  # advise: the advice; reject: the reason; inject: a note; answer: the reply
    scope: AdviceScope | None = None  # advise at a node; None: its subtree
    source: str = ""  # inject: a whole Python file that defines ModelNew
    question: str = ""  # answer: the question's name, as `RUN/questions/NAME.md`


class Directive(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a person asks of a run; one key takes effect once, however often it is submitted."""

    key: str
    verb: Verb
    task: str = ""  # "": the run's only task, or the whole run
    node: int | None = None
    arguments: DirectiveArguments = DirectiveArguments()
    by: str = ""  # for people: a user's name, "page"
    at: float = 0.0  # wall clock; directives are taken in this order


def new_directive(
    verb: Verb,
    *,
    task: str = "",
    node: int | None = None,
    arguments: DirectiveArguments | None = None,
    by: str = "",
    key: str = "",
) -> Directive:
    """Return a directive of this moment; `key`: a caller's own, for a request that it may repeat.

    Raises DirectiveError where the arguments do not fit the verb.
    """
    return checked(
        Directive(
            key=key or secrets.token_hex(8),
            verb=verb,
            task=task,
            node=node,
            arguments=arguments or DirectiveArguments(),
            by=by,
            at=time.time(),
        )
    )


def submit_directive(run_dir: Path, directive: Directive) -> str:
    """Write a directive into a run's spool, and return its key.

    A key that waits there already is not written again.  Raises DirectiveError where the directive
    is not usable, and OSError where the folder can't be written.
    """
    directive = checked(directive)
    folder = run_dir / DIRECTIVES
    folder.mkdir(exist_ok=True)
    path = folder / f"{directive.key}.json"
    if path.exists():
        return directive.key
    if sum(1 for _ in folder.iterdir()) >= MAX_WAITING:
        raise DirectiveError(f"{MAX_WAITING} directives wait in {folder} already: is the run on?")
    content = msgspec.json.encode(directive)
    if len(content) > MAX_FILE_BYTES:
        raise DirectiveError(f"the directive has more than {MAX_FILE_BYTES >> 20} MiB")
    write_atomically(path, content, sync_folder=True)
    return directive.key


def waiting_directives(run_dir: Path) -> list[Directive]:
    """Return the directives that no coordinator has taken yet, in their order."""
    found = []
    for path in waiting_files(run_dir):
        with suppress(DirectiveError):
            found.append(read_directive(path))
    return sorted(found, key=lambda one: (one.at, one.key))


def waiting_files(run_dir: Path) -> list[Path]:
    """Return the files of the spool, at most `MAX_WAITING`; [] where there is no spool."""
    names: list[str] = []
    with suppress(OSError), os.scandir(run_dir / DIRECTIVES) as entries:
        for entry in entries:
            if entry.name.endswith(".json") and not entry.name.startswith("."):
                names.append(entry.name)
                if len(names) >= MAX_WAITING:
                    break
    return [run_dir / DIRECTIVES / name for name in sorted(names)]


def read_directive(path: Path) -> Directive:
    """Return the directive in a file of the spool; raise DirectiveError where there is none.

    The file has to be a plain one: a pipe would block its reader, and a link leads elsewhere.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise DirectiveError("it is not a plain file")
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise DirectiveError(f"it can't be read: {error.strerror}") from error
    if len(content) > MAX_FILE_BYTES:
        raise DirectiveError(f"it has more than {MAX_FILE_BYTES >> 20} MiB")
    try:
        directive = msgspec.json.decode(content, type=Directive)
    except (ValueError, RecursionError) as error:
        raise DirectiveError(f"it is not a directive: {error}") from error
    if f"{directive.key}.json" != path.name:
        raise DirectiveError(f"its key is {directive.key!r}, which is not its name")
    return checked(directive)


# --- checks --------------------------------------------------------------------------------------


def checked(directive: Directive) -> Directive:
    """Return the directive with clean texts; raise DirectiveError where it can't be meant so.

    Whether it is possible (is there such a node?) is for the coordinator to say.
    """
    arguments = directive.arguments
    if not KEY_PATTERN.fullmatch(directive.key):
        raise DirectiveError("a key is 1 to 64 letters, digits, hyphens and underscores")
    if not math.isfinite(directive.at):
        raise DirectiveError("at is not a time")
    if directive.node is not None and not 0 <= directive.node <= MAX_ATTEMPTS:
        raise DirectiveError(f"{directive.verb}: there is no node {directive.node}")
    problem = _node_problem(directive) or _argument_problem(directive.verb, arguments)
    if problem:
        raise DirectiveError(f"{directive.verb}: {problem}")
    source = _source(arguments.source) if directive.verb == "inject" else ""
    return msgspec.structs.replace(
        directive,
        task=_line(directive.task, MAX_NAME_CHARS, "the task's name"),
        by=one_line(directive.by)[:MAX_BY_CHARS],
        arguments=msgspec.structs.replace(
            arguments, text=_text(directive.verb, arguments.text), source=source
        ),
    )


def _node_problem(directive: Directive) -> str:
    if directive.verb in NODE_VERBS and directive.node is None:
        return "it needs a node"
    if directive.verb in RUN_VERBS and (directive.node is not None or directive.task):
        return "it concerns the whole run: name neither a task nor a node"
    if directive.verb == "budget" and directive.node is not None:
        return "it concerns a task or the whole run: name no node"
    return ""


def _argument_problem(verb: Verb, arguments: DirectiveArguments) -> str:
    match verb:
        case "budget" if not 1 <= (arguments.attempts or 0) <= MAX_ATTEMPTS:
            return "it needs the number of attempts, 1 or more"
        case "cap" if arguments.usd is None or not 0 <= arguments.usd <= MAX_USD:
            return "it needs US dollars, 0 or more"
        case "boost" if arguments.count is not None and not 1 <= arguments.count <= MAX_BOOST:
            return f"the number of attempts is 1 to {MAX_BOOST}"
        case "inject" if not arguments.source.strip():
            return "it needs a source: a Python file that defines ModelNew"
        case "reject" if not arguments.text.strip():
            return "it needs a reason"
        case "answer" if not QUESTION_PATTERN.fullmatch(arguments.question):
            return "it needs a question's name, as in RUN/questions/NAME.md"
        case "answer" if not arguments.text.strip():
            return "it needs the reply's text"
    return ""


def _text(verb: Verb, text: str) -> str:
    if verb == "answer":
        return _limited(clean(text), MAX_REPLY_CHARS, "the reply")
    if verb == "advise":
        return _limited(clean(text).strip(), MAX_ADVICE_CHARS, "the advice")
    return _line(text, MAX_REASON_CHARS, "the text")


def _source(source: str) -> str:
    text = source.replace("\r\n", "\n")
    if "\0" in text or not _is_unicode(text):
        raise DirectiveError("inject: the source is not a text")
    return _limited(text, MAX_SOURCE_CHARS, "the source")


def _line(text: str, most: int, name: str) -> str:
    return _limited(one_line(text), most, name)


def _limited(text: str, most: int, name: str) -> str:
    if len(text) > most:
        raise DirectiveError(f"{name} has {len(text):,} characters; at most {most:,} are allowed")
    return text


def one_line(text: str) -> str:
    """Return a text as one clean line."""
    return " ".join(clean(text).split())


def clean(text: str) -> str:
    """Return a text without control characters, except tabs and line ends."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\u2028", "\n")
    text = text.replace("\u2029", "\n")
    return "".join(
        char
        for char in text
        if char in "\n\t"
        or (unicodedata.category(char) not in ("Cc", "Cs") and char not in DIRECTION_MARKS)
    )


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
