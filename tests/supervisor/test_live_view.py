"""What a user finds on a terminal, at several sizes, with and without colour."""

from __future__ import annotations

import io
import os
import pty
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from supervisor_sample import Sample, correct

from actors.supervisor.reporting.run_data.run_reader import RunReader
from actors.supervisor.reporting.run_data.snapshot import NodeView, Snapshot, TaskState
from actors.supervisor.reporting.run_data.worker_status import WorkerStatus
from actors.supervisor.reporting.screens import run_progress
from actors.supervisor.reporting.screens.live_view import LiveScreen
from actors.supervisor.reporting.screens.screen import PlainScreen
from protocol.settings import SearchSettings, Settings

TOP = Path(__file__).parents[2]
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"
HOSTILE = "evil\x1b[2J\r\n名前\u202e\x07"
COLOURS = pytest.mark.parametrize("colour", [None, "truecolor"])
SIZES = pytest.mark.parametrize(("width", "height"), [(40, 24), (80, 24), (140, 50)])


def worker(slot: str, activity: str = "", **fields: object) -> WorkerStatus:
    known: dict[str, object] = {"state": "up", "pid": 7, "restarts": 0, "seconds": 63.0, **fields}
    return WorkerStatus(slot=slot, activity=activity, **known)  # type: ignore[arg-type]


def console_of(width: int, height: int, colour: str | None = None) -> Console:
    return Console(
        file=io.StringIO(), force_terminal=True, width=width, height=height, color_system=colour,  # type: ignore[arg-type]
        legacy_windows=False, _environ={},
    )  # fmt: skip


def picture(
    snapshot: Snapshot,
    workers: tuple[WorkerStatus, ...],
    console: Console,
    settings: Settings | None = None,
    said: tuple[str, ...] = (),
) -> str:
    """Return the last picture of a live view, without escape sequences."""
    screen = LiveScreen(console, settings or Settings(), "runs/x", clock=lambda: 12.0)
    screen.show(snapshot, workers, 75.0)
    for line in said:
        screen.say(line)
    file = io.StringIO()
    console.file = file
    screen.show(snapshot, workers, 76.0)
    text = file.getvalue()
    screen.close()
    return ESCAPES.sub("", text).replace("\r", "")


def snapshot_of(sample: Sample) -> Snapshot:
    reader = RunReader(sample.path)
    found = reader.poll()
    reader.close()
    assert found is not None
    return found


@pytest.fixture
def run(tmp_path: Path) -> Snapshot:
    """Three tasks under way, one not measured yet; a hostile name and hostile reasons."""
    sample = Sample(tmp_path, names=("gelu", "norm"), budget=30, status="running")
    sample.add_call("gelu/1/plan", 0.5)
    found = snapshot_of(sample)
    sample.db.close()
    unmeasured = TaskState(name="last", budget=30, status="new")
    evil = msgspec.structs.replace(found.tasks[1], name=HOSTILE)
    return msgspec.structs.replace(found, tasks=(found.tasks[0], evil, unmeasured))


WORKERS = (
    worker("coder-0", "asking [bold] (gelu/7/write)", restarts=2, cause="signal 9 (SIGKILL)"),
    worker("evaluator-0", "measuring torch.compile default (limit 300 s) of last", seconds=12.0),
    worker("planner-0"),
)


@COLOURS
@SIZES
def test_a_picture_fits_the_terminal(
    run: Snapshot, width: int, height: int, colour: str | None
) -> None:
    """No line is wider and no picture higher than the terminal; no control character reaches it."""
    settings = Settings(max_cost=5.0, search=SearchSettings(budget=30))
    text = picture(run, WORKERS, console_of(width, height, colour), settings)
    lines = text.rstrip("\n").split("\n")
    assert max(map(cell_len, lines)) <= width
    assert len(lines) < height
    assert not set("\x07\x1b\u202e") & set(text)


@COLOURS
@SIZES
def test_a_picture_answers_a_users_questions(
    run: Snapshot, width: int, height: int, colour: str | None
) -> None:
    """State, attempts, pace, dollars, time left, best and its path, curve, who does what."""
    settings = Settings(max_cost=5.0, search=SearchSettings(budget=30))
    said = ("evaluator-0 died (signal 9): starts again at once",)
    text = picture(run, WORKERS, console_of(width, height, colour), settings, said)
    words = " ".join(text.split())
    for expected in (
        "running 1:16",
        "runs/x",
        "12 of 90 attempts",
        "a minute",
        "0.50 of 5.00 USD",
        "left (estimate)",
        "2.50×",
        "3 correct",
        "→ 3 2.50×",
        "▁",
        "evaluator-0 died (signal 9): starts again at once",
        "last: measuring torch.compile default (limit 300 s), for 0:12",
        "coder-0",
        "asking [bold]",
    ):
        assert expected in words


def test_a_wide_terminal_shows_more(run: Snapshot) -> None:
    """At 140 columns there are trees, restarts and their causes; at 40 the table is small."""
    wide = picture(run, WORKERS, console_of(140, 50))
    for expected in ("5 correct 2.00×", "★", "signal 9 (SIGKILL)", "advice <3>", "restarts"):
        assert expected in wide
    assert "restarts" not in picture(run, WORKERS, console_of(40, 24))


def test_colour_is_only_decoration(run: Snapshot) -> None:
    """The same words, with and without colours."""
    plain, coloured = (
        picture(run, WORKERS, console_of(80, 40, colour)) for colour in (None, "truecolor")
    )
    assert plain == coloured


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"is_paused": True}, "paused by a person: nothing new begins"),
        ({"status": "draining"}, "draining: ends what is under way"),
        ({"status": "blocked", "reason": "401: key"}, "blocked (401: key)"),
        ({"status": ""}, "starting"),
    ],
)
def test_a_run_that_does_not_go_on_says_why(
    run: Snapshot, changes: dict[str, object], expected: str
) -> None:
    """The first line has the state and its reason, and no time left is promised."""
    text = picture(msgspec.structs.replace(run, **changes), (), console_of(80, 24))
    assert text.lstrip("\n").startswith(expected)
    assert "estimate" not in text


def test_the_last_messages_stay_visible(run: Snapshot) -> None:
    """However often the picture is drawn, the last errors are in it."""
    said = tuple(f"message {number}" for number in range(5))
    text = picture(run, WORKERS, console_of(80, 30), said=said)
    assert ["message 2", "message 3", "message 4"] == re.findall(r"message \d", text)


def test_many_actors_leave_room_for_the_rest(run: Snapshot) -> None:
    """Of 64 evaluators those with trouble and those at work are shown, and a count."""
    workers = tuple(
        worker(f"evaluator-{number}", "" if number % 8 else "timing", cause="died" * (number == 9))
        for number in range(64)
    )
    text = picture(run, workers, console_of(140, 30))
    assert "evaluator-9 " in text
    assert re.search(r"\d+ more, \d+ idle", text)
    assert len(text.rstrip("\n").split("\n")) < 30


def test_an_old_terminal_gets_ascii_for_the_curve(run: Snapshot) -> None:
    """Where block characters can't be written, the curve has other signs."""
    console = console_of(80, 30)
    console.file = io.TextIOWrapper(io.BytesIO(), encoding="latin-1", write_through=True)
    line = run_progress.curve_line(run.tasks[0], 20, ascii_only=True)
    assert line.isascii() or "×" in line
    assert not set(run_progress.BLOCKS) & set(line)


def test_a_resized_terminal_is_drawn_anew(run: Snapshot) -> None:
    """After a change of size the old picture is cleared: its lines were wrapped."""
    console = console_of(140, 50)
    screen = LiveScreen(console, Settings(), "runs/x", clock=lambda: 12.0)
    screen.show(run, WORKERS, 1.0)
    screen.say("something failed")
    console.size = (60, 24)  # type: ignore[assignment]
    screen.show(run, WORKERS, 2.0)
    before, cleared, after = console.file.getvalue().rpartition("\x1b[2J\x1b[H")  # type: ignore[attr-defined]
    assert cleared
    assert HIDE in before
    assert "something failed" in after
    assert max(cell_len(ESCAPES.sub("", line)) for line in after.split("\n")) <= 60
    screen.close()


def test_the_cursor_is_shown_again(run: Snapshot) -> None:
    """Closing restores the terminal, also twice, and also before anything was drawn."""
    console = console_of(80, 24)
    screen = LiveScreen(console, Settings(), "runs/x")
    screen.close()
    assert "" == console.file.getvalue()  # type: ignore[attr-defined]
    screen.show(run, WORKERS, 1.0)
    screen.close()
    screen.close()
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert text.rindex(SHOW) > text.rindex(HIDE)


def test_a_closed_terminal_ends_no_run(run: Snapshot) -> None:
    """The window is closed, or the connection lost: the run drains and writes its results."""
    master, slave = pty.openpty()
    with io.TextIOWrapper(io.FileIO(slave, "w"), encoding="utf-8", write_through=True) as terminal:  # type: ignore[type-var]
        console = Console(file=terminal, force_terminal=True, width=100, height=30)
        screen = LiveScreen(console, Settings(), "runs/x")
        screen.show(run, WORKERS, 1.0)
        os.close(master)
        with pytest.raises(OSError, match="Input/output error"):
            os.write(slave, b"x")
        screen.say("stopped by SIGHUP")
        screen.show(run, WORKERS, 2.0)
        screen.close()


QUITTER = """
import os, signal, sys
sys.path.insert(0, {top!r})
from rich.console import Console
from actors.supervisor.reporting.screens.live_view import LiveScreen
from actors.supervisor.reporting.run_data.snapshot import Snapshot
from protocol.settings import Settings
LiveScreen(Console(), Settings(), "runs/x").show(Snapshot(), (), 1.0)
os.kill(os.getpid(), signal.SIGQUIT)
"""


def test_ctrl_backslash_leaves_a_cursor() -> None:
    r"""Ctrl-\ ends the process at once, and its terminal is usable afterwards."""
    master, slave = pty.openpty()
    command = [sys.executable, "-c", QUITTER.format(top=str(TOP))]
    environment = {**os.environ, "TERM": "xterm"}
    done = subprocess.run(command, stdout=slave, stderr=slave, env=environment, check=False)
    os.close(slave)
    parts = []
    with suppress(OSError):  # the end of a terminal that no process holds any more
        while part := os.read(master, 1 << 16):
            parts.append(part)
    os.close(master)
    text = b"".join(parts).decode()
    assert -signal.SIGQUIT == done.returncode
    assert HIDE in text
    assert text.rindex(SHOW) > text.rindex(HIDE)


# --- plain lines -----------------------------------------------------------------------------


def test_plain_lines_say_what_changes(run: Snapshot) -> None:
    """Without a terminal: long measurements, pauses, and a summary every few minutes."""
    stream = io.StringIO()
    settings = Settings(max_cost=5.0, search=SearchSettings(budget=30))
    screen = PlainScreen(stream, settings=settings, clock=lambda: 12.0)
    screen.show(run, (), 0.0)
    before = len(stream.getvalue().splitlines())
    for second in range(1, 12):
        screen.show(run, WORKERS, float(second))
    paused = msgspec.structs.replace(run, is_paused=True)
    for snapshot, second in ((paused, 12.0), (paused, 13.0), (run, 14.0), (run, 301.0)):
        screen.show(snapshot, WORKERS, second)
    assert stream.getvalue().splitlines()[before:] == [
        "evaluator-0: measuring torch.compile default (5 s; limit 300 s) of last",
        "paused by a person: nothing new begins",
        "the run goes on",
        "after 5:01: 12 of 90 attempts, 2.4 a minute, 0.50 of 5.00 USD, about 33 min left"
        " (estimate)",
    ]


def test_plain_lines_have_no_control_characters(run: Snapshot) -> None:
    """A candidate's words can't clear a terminal that a log is printed to."""
    stream = io.StringIO()
    PlainScreen(stream).show(run, (), 0.0)
    assert not set("\x1b\x07\r\u202e") & set(stream.getvalue())


# --- progress --------------------------------------------------------------------------------


@given(st.lists(st.floats(1.0, 1e6), min_size=1, max_size=300), st.integers(1, 60))
def test_a_curve_never_falls_and_ends_at_the_top(drawn: list[float], width: int) -> None:
    """At any width the curve of a best so far rises to its last value."""
    best = [max(drawn[: place + 1]) for place in range(len(drawn))]
    curve = run_progress.blocks([1.0, *best], width)
    heights = [run_progress.BLOCKS.index(sign) for sign in curve]
    assert len(curve) == min(width, len(best) + 1)
    assert heights == sorted(heights)
    assert heights[-1] == (len(run_progress.BLOCKS) - 1 if best[-1] > 1.0 else 0)


def test_the_time_left_is_the_limits_where_that_is_shorter(run: Snapshot) -> None:
    """--max-minutes ends a run before its estimate; what is certain is not called an estimate."""
    settings = Settings(max_minutes=2.0)
    assert "0:45 left of --max-minutes" == run_progress.time_left(run, settings, 1.0, 75.0)
    assert "about 78 min left (estimate)" == run_progress.time_left(run, Settings(), 1.0, 75.0)
    assert "" == run_progress.time_left(run, Settings(), None, 75.0)


def test_a_run_that_only_measures_baselines_says_so(run: Snapshot) -> None:
    """Its searches are over, and the user would wonder what it waits for."""
    task = next(one for one in run.tasks if one.reference is not None)
    for is_pending in (True, False):
        reference = msgspec.structs.replace(
            task.reference,  # type: ignore[arg-type]  # it is none of those without
            baselines_pending=is_pending,
        )
        over = msgspec.structs.replace(task, status="finished", reference=reference)
        text = run_progress.time_left(
            msgspec.structs.replace(run, tasks=(over,)), Settings(), None, 75.0
        )
        assert is_pending == ("baselines" in text)


def test_a_persons_cap_replaces_the_commands(run: Snapshot) -> None:
    """The dollars are shown against the cap in force."""
    changed = msgspec.structs.replace(run, cap_usd=2.0)
    assert "0.50 of 2.00 USD" == run_progress.dollars(changed, Settings(max_cost=5.0))
    assert "0.50 USD" == run_progress.dollars(run, Settings())


def test_a_long_path_keeps_its_end() -> None:
    """In a narrow terminal the steps next to the best stay."""
    nodes = tuple(
        NodeView(
            task="t",
            number=number,
            parent=number - 1,
            advice="",
            at=1.0,
            verdict=correct(1000.0 - number),
            score_us=1000.0 - number,
        )
        for number in range(1, 20)
    )
    task = TaskState(name="t", budget=30, status="", nodes=nodes)
    line = run_progress.path_line(task, 30)
    assert line.startswith("0 → … → ")
    assert line.endswith("→ 19 1.02×")
    assert len(line) <= 30
