"""Questions of an agent to a person: the folder `RUN/questions/`.

With `--ask-person SECONDS` an agent writes its request to `NAME.md` and waits for `NAME.answer.md`.
A person writes that file, or submits the directive `answer`, which makes it.  Whatever creates the
answer first wins: another answer, or the agent's own note that the time is over.
"""

from __future__ import annotations

import os
import re
import secrets
from contextlib import suppress
from pathlib import Path

from protocol.atomic_file import write_atomically

QUESTIONS = "questions"  # a folder of the run
PERSON = "person"  # the model's name in a call that a person answered
NOT_ANSWERED = "<!-- not answered in time: the model is asked -->\n"
SETTLED_S = 1.0  # without a change, after which a file is complete
MAX_ANSWER_BYTES = 4 << 20
NAME_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,64}")


def question_name(role: str, attempt: int, key: str) -> str:
    """Return the name of a question; the same request always has the same name."""
    return f"{role}-{attempt}-{key[:12]}"


def ask(run_dir: Path, name: str, text: str) -> float:
    """Write a question, once, and return when it was written (wall clock).

    Raises OSError where the folder can't be written.
    """
    path = run_dir / QUESTIONS / f"{name}.md"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, text)
    return path.stat().st_mtime


def open_questions(run_dir: Path) -> list[str]:
    """Return the names of the questions without an answer, the oldest first."""
    folder = run_dir / QUESTIONS
    found: list[tuple[float, str]] = []
    with suppress(OSError):
        for path in folder.glob("*.md"):
            name = path.name.removesuffix(".md")
            if NAME_PATTERN.fullmatch(name) and not answer_path(run_dir, name).exists():
                found.append((path.stat().st_mtime, name))
    return [name for _, name in sorted(found)]


def question_text(run_dir: Path, name: str) -> str | None:
    """Return what was asked; None where no such question is there."""
    if not has_question(run_dir, name):
        return None
    try:
        return (run_dir / QUESTIONS / f"{name}.md").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def has_question(run_dir: Path, name: str) -> bool:
    """Whether such a question was asked."""
    return bool(NAME_PATTERN.fullmatch(name)) and (run_dir / QUESTIONS / f"{name}.md").is_file()


def answer_path(run_dir: Path, name: str) -> Path:
    """Return the file that holds a question's answer."""
    return run_dir / QUESTIONS / f"{name}.answer.md"


def answer(run_dir: Path, name: str, text: str) -> bool:
    """Give an answer; return whether the question has this one now.

    The file appears whole or not at all, and an answer that is there is never replaced.
    """
    path = answer_path(run_dir, name)
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    try:
        write_atomically(scratch, text)
        with suppress(FileExistsError):
            os.link(scratch, path)
    finally:
        with suppress(OSError):
            scratch.unlink()
    return path.read_text(encoding="utf-8", errors="replace") == text


def read_answer(run_dir: Path, name: str, now: float) -> str | None:
    """Return a question's answer; None while there is none, or while it is being written.

    `now`: wall clock.
    """
    path = answer_path(run_dir, name)
    try:
        found = path.stat()
        if 0 <= now - found.st_mtime < SETTLED_S or found.st_size > MAX_ANSWER_BYTES:
            return None
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text if text.strip() else None
