"""The parser of every command line here, and that every command line has it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from actors.cli import OneLineParser


@pytest.mark.parametrize(
    ("prog", "short"),
    [
        ("python scripts/story.py", "story"),
        ("python -m actors.evaluator.build", "build"),
        ("stark tickets", "tickets"),
        ("'/the venv/bin/stark' story", "story"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_program_and_where_to_look(
    prog: str, short: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 2, nothing on stdout; also from a word's own flags."""
    parser = OneLineParser(prog=prog)
    parser.add_argument("--count", type=int)
    parser.add_subparsers().add_parser("new").add_argument("--hours", type=float)
    for argv in (["--count", "many"], ["new", "--hours", "many"]):
        with pytest.raises(SystemExit) as ended:
            parser.parse_args(argv)
        said = capsys.readouterr()
        assert (2, "", 1) == (ended.value.code, said.out, len(said.err.splitlines()))
        assert said.err.startswith(f"{short}: {argv[-2]}: invalid")
        assert f"see {prog}" in said.err


def test_where_others_may_follow_a_mistake_is_raised() -> None:
    """A command with its own last words gets the same line as an exception."""
    parser = OneLineParser(prog="python supervisor.py")
    parser.refusal = KeyError
    with pytest.raises(KeyError, match=r"unrecognized arguments: -x; see python supervisor\.py"):
        parser.parse_args(["-x"])


TOP = Path(__file__).parents[1]
SCRIPTS = ("doctor", "report", "replay", "story", "tickets", "chaos", "kernelbench")
BENCHMARKS = ("", ".selection", ".scale", ".recovery", ".whole_run", ".judge")
COMMANDS = (
    ("supervisor.py",),
    ("-m", "actors.evaluator"),
    *((f"scripts/{name}.py",) for name in SCRIPTS),
    *(("-m", f"scripts.benchmarks{name}") for name in BENCHMARKS),
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[-1])
def test_no_command_overlooks_a_word_that_it_does_not_know(command: tuple[str, ...]) -> None:
    """Whoever mistypes a flag is told so, instead of waiting for what was not asked for."""
    done = subprocess.run(
        [sys.executable, *command, "--such-a-flag"],
        cwd=TOP, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (2, "") == (done.returncode, done.stdout)
    assert len(done.stderr.splitlines()) == 1
    # Some miss a file first; all of them say where to look.
    assert "--such-a-flag" in done.stderr or "are required" in done.stderr


def test_tickets_of_a_run_that_is_not_there() -> None:
    """A mistyped folder is no run that never listened."""
    done = subprocess.run(
        [sys.executable, str(TOP / "scripts" / "tickets.py"), "absent"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (2, "") == (done.returncode, done.stdout)
    assert done.stderr == "absent: there is no such folder\n"


def test_a_reader_that_stops_sees_no_traceback() -> None:
    """`doctor | head -1`: the first line, and nothing on stderr."""
    piped = subprocess.run(
        ["sh", "-c", f"{sys.executable} scripts/doctor.py | head -1"],
        cwd=TOP, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ("", 1) == (piped.stderr, len(piped.stdout.splitlines()))
