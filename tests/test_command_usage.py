"""The parser of all command lines, and its use by each of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from process_template import run_process

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
    """The status is 2 and stdout is empty, also for the flags of a subcommand."""
    parser = OneLineParser(prog=prog)
    parser.add_argument("--count", type=int)
    parser.add_subparsers().add_parser("new").add_argument("--hours", type=float)
    for argv in (["--count", "many"], ["new", "--hours", "many"]):
        with pytest.raises(SystemExit) as ended:
            parser.parse_args(argv)
        output = capsys.readouterr()
        assert (2, "", 1) == (ended.value.code, output.out, len(output.err.splitlines()))
        assert output.err.startswith(f"{short}: {argv[-2]}: invalid")
        assert f"see {prog}" in output.err


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("--taks", "unrecognized arguments: --taks (did you mean --task?); see"),
        ("--taks=t.py", "unrecognized arguments: --taks=t.py (did you mean --task?); see"),
        ("--such-a-flag", "unrecognized arguments: --such-a-flag; see"),
    ],
)
def test_a_mistyped_flag_is_refused_with_the_nearest_one(
    typed: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A flag that none is like is refused without a guess."""
    parser = OneLineParser(prog="python supervisor.py")
    parser.add_argument("--task")
    parser.add_argument("--resume")
    with pytest.raises(SystemExit):
        parser.parse_args([typed])
    assert said in capsys.readouterr().err


def test_a_mistake_is_an_exception_for_a_command_that_prints_it_itself() -> None:
    """A command with an error handler of its own gets the same line as an exception."""
    parser = OneLineParser(prog="python supervisor.py")
    parser.refusal = KeyError
    with pytest.raises(KeyError, match=r"unrecognized arguments: -x; see python supervisor\.py"):
        parser.parse_args(["-x"])


TOP = Path(__file__).parents[1]
SCRIPTS = (
    *("doctor", "report", "replay", "story", "steer", "export", "tickets", "chaos"),
    *("kernelbench", "compare", "adopt", "ship"),
)
BENCHMARKS = ("", ".selection", ".scale", ".recovery", ".whole_run", ".judge")
TABLES = ("results", "confirm_results", "rule_book_results", "rule_book_coverage")
COMMANDS = (
    ("supervisor.py",),
    ("-m", "actors.evaluator"),
    *((f"scripts/{name}.py",) for name in SCRIPTS),
    *(("-m", f"scripts.benchmarks{name}") for name in BENCHMARKS),
    *(("-m", f"scripts.tables.{name}") for name in TABLES),
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[-1])
def test_every_command_refuses_an_unknown_flag(command: tuple[str, ...]) -> None:
    """A mistyped flag is reported at once; the command does not start without it."""
    status, lines = run_process([*command, "--such-a-flag"], TOP)
    assert (2, 1) == (status, len(lines))
    # Some commands report a missing file first.
    assert "--such-a-flag" in lines[0] or "are required" in lines[0]


def test_a_task_that_the_cards_are_chosen_for_is_missing() -> None:
    """The line names the file and what is wrong with it."""
    refused = run_process(["scripts/cards.py", "choose", "--task", "absent.py"], TOP)
    assert (2, ["can't use absent.py: No such file or directory"]) == refused


def test_tickets_of_a_missing_folder() -> None:
    """A mistyped folder is reported as missing, not as a run without tickets."""
    refused = run_process(["scripts/tickets.py", "absent"], TOP)
    assert (2, ["absent: there is no such folder"]) == refused


def test_a_reader_that_stops_early_causes_no_traceback() -> None:
    """`doctor | head -1` prints the first line, and stderr is empty."""
    piped = subprocess.run(
        ["sh", "-c", f"{sys.executable} scripts/doctor.py | head -1"],
        cwd=TOP, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ("", 1) == (piped.stderr, len(piped.stdout.splitlines()))


def test_help_that_a_full_disk_does_not_take_causes_no_traceback() -> None:
    """`stark --help > full-disk` ends as argparse's own help does there."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "scripts/stark.py", "--help"],
            cwd=TOP, stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert ("", 0) == (done.stderr, done.returncode)


def test_a_terminal_that_lacks_a_character_shows_a_question_mark(tmp_path: Path) -> None:
    """In a Latin or ASCII locale, `µs` and `×` must not end a run with a traceback."""
    program = (
        "from actors.cli import ensure_std_streams; ensure_std_streams();"
        "print('1.63× (1.43–1.69) 562 µs')"
    )
    for encoding, expected in (
        ("ascii", "1.63? (1.43?1.69) 562 ?s\n"),
        ("ascii:surrogateescape", "1.63? (1.43?1.69) 562 ?s\n"),
        ("utf-8", "1.63× (1.43–1.69) 562 µs\n"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONIOENCODING": encoding, "PYTHONPATH": str(TOP)},
            capture_output=True,
            cwd=tmp_path,
        )
        assert (0, expected) == (done.returncode, done.stdout.decode()), done.stderr.decode()
