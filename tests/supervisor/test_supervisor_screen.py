"""What a user sees during a run."""

from __future__ import annotations

import io
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from supervisor_sample import Sample, correct, failed

from actors.supervisor.reporting.run_data.run_reader import RunReader
from actors.supervisor.reporting.run_data.snapshot import NodeView, Snapshot, TaskState, WorkerState
from actors.supervisor.reporting.run_data.worker_status import WorkerStatus, worker_statuses
from actors.supervisor.reporting.screens import run_progress
from actors.supervisor.reporting.screens.live_view import LiveScreen, nodes_to_show
from actors.supervisor.reporting.screens.screen import PlainScreen
from protocol.messages import STOPPED_EARLY
from protocol.settings import Settings
from protocol.values import Outcome, Verdict


def poll(reader: RunReader) -> Snapshot:
    snapshot = reader.poll()
    assert snapshot is not None
    return snapshot


def test_plain_lines_show_each_attempt_once(tmp_path: Path) -> None:
    """A log of a run has one line an attempt, in text that can be searched."""
    sample = Sample(tmp_path, budget=30, status="running")
    reader, stream = RunReader(tmp_path), io.StringIO()
    screen = PlainScreen(stream)
    snapshot = poll(reader)
    screen.show(snapshot, (), 0.0)
    screen.show(snapshot, (), 1.0)
    sample.add_node("gelu", 10, 3, correct(200.0))
    screen.show(poll(reader), (), 2.0)
    sample.confirm("gelu", 10, correct(250.0))
    snapshot = poll(reader)
    screen.show(snapshot, (), 3.0)
    screen.show(snapshot, (), 4.0)
    lines = stream.getvalue().splitlines()
    assert lines == [
        "gelu: reference 1.00 ms on Test CPU, 2 cores",
        "[ 1/30] gelu: compile_failed  from 0: error: expected ';' before <b>",
        "[ 2/30] gelu: correct 1.25× (1.24–1.26) 800 µs, first look  from 0: advice <2>",
        "[ 3/30] gelu: correct 2.50× (2.48–2.52) 400 µs, first look  ← best  from 2: advice <3>",
        "[ 4/30] gelu: wrong  from 2: y[0, 1] is 2.0, expected 1.0",
        "[ 5/30] gelu: correct 2.00× (1.98–2.02) 500 µs, first look  from 3: advice <5>",
        "[ 6/30] gelu: no_candidate  from 0: the model refused",
        "[10/30] gelu: correct 5.00× (4.95–5.05) 200 µs, first look  ← best  from 3: advice <10>",
        "gelu: node 10 judged again: correct 4.00× (3.96–4.04) 250 µs, confirmed; at first 5.00×"
        " (4.95–5.05)",
    ]
    reader.close()


def test_a_task_that_can_not_be_measured_has_its_line_at_once(tmp_path: Path) -> None:
    """A person may end the run and choose another task; its attempts are not waited for."""
    sample = Sample(tmp_path, names=("gelu", "huge"), nodes=(), budget=30, status="running")
    reader, stream = RunReader(tmp_path), io.StringIO()
    screen = PlainScreen(stream, settings=sample.settings)
    sample.db.execute(
        "UPDATE task SET reference = NULL, status = 'refused', problem = 'too large'"
        " WHERE name = 'huge'"
    )
    sample.db.commit()
    snapshot = poll(reader)
    screen.show(snapshot, (), 0.0)
    screen.show(snapshot, (), 1.0)
    assert stream.getvalue().splitlines() == [
        "gelu: reference 1.00 ms on Test CPU, 2 cores",
        "huge: can't be measured: too large",
    ]
    assert "0 of 30 attempts" == run_progress.summary(snapshot, sample.settings, 0.0, 1.0)[0]
    reader.close()


def test_a_resumed_run_does_not_show_old_attempts_again(tmp_path: Path) -> None:
    """Of the attempts that were recorded before, only the count is shown."""
    sample = Sample(tmp_path, budget=30, status="running")
    reader, stream = RunReader(tmp_path), io.StringIO()
    screen = PlainScreen(stream, resumed=True)
    screen.show(poll(reader), (), 0.0)
    sample.add_node("gelu", 7, 3, failed(Outcome.TIMED_OUT, "endless", "check"))
    screen.show(poll(reader), (), 1.0)
    assert stream.getvalue().splitlines() == [
        "resumed: 6 of 30 attempts are recorded already",
        "[ 7/30] gelu: timed_out  from 3: endless",
    ]
    reader.close()


def test_a_reader_that_closes_the_pipe_does_not_end_the_run() -> None:
    """The run goes on after `| head` has closed the pipe."""

    class ClosedPipe(io.StringIO):
        def flush(self) -> None:
            raise BrokenPipeError

    screen = PlainScreen(ClosedPipe())
    screen.say("one")
    screen.say("two")


def test_the_live_view_shows_tree_workers_and_spend(tmp_path: Path) -> None:
    """One screen answers a user's questions about a run; markup in a candidate stays text."""
    sample = Sample(tmp_path, budget=30, status="running")
    sample.add_call("gelu/1/plan", 0.5)
    reader = RunReader(tmp_path)
    console = Console(
        file=io.StringIO(), force_terminal=True, width=140, height=50, color_system=None
    )
    screen = LiveScreen(console, sample.settings, "runs/x")
    workers = (
        WorkerStatus(slot="coder-0", state="up", pid=7, restarts=2, activity="asking [bold]",
        seconds=63.0,
               leases=3, rtt_ms=1.5, cause="signal 9 (SIGKILL)"),
    )  # fmt: skip
    screen.show(poll(reader), workers, 75.0)
    screen.say("evaluator-0 died [signal 9]")
    screen.close()
    text = console.file.getvalue()  # type: ignore[attr-defined]
    for words in (
        "running 1:15  runs/x",
        "recipes (as asked)",
        "best is node 3: 2.50× (2.48–2.52) 400 µs (reference 1.00 ms), 6/30 attempts, first look",
        "3 correct, 1 compile_failed, 1 no_candidate, 1 wrong",
        "5 correct 2.00×",
        "asking [bold]",
        "1:03",
        "1.50 ms",
        "signal 9 (SIGKILL)",
        "0.50 USD",
        "died [signal 9]",
    ):
        assert words in text
    reader.close()


def test_a_run_of_an_older_version_can_be_read(tmp_path: Path) -> None:
    """A worker table without newer columns is read with their defaults."""
    sample = Sample(tmp_path)
    sample.db.execute(
        "INSERT INTO worker (slot, role, incarnation, pid, state, doing, since, starts, how)"
        " VALUES ('evaluator-0', 'evaluator', 'x', 1, 'up', 'building', 1.0, 2, '')"
    )
    for column in ("leases", "rtt_ms", "quarantine"):
        sample.db.execute(f"ALTER TABLE worker DROP COLUMN {column}")
    reader = RunReader(tmp_path)
    (worker,) = poll(reader).workers
    reader.close()

    assert ("building", 2, 0, None, "") == (
        worker.doing, worker.starts, worker.leases, worker.rtt_ms, worker.quarantine
    )  # fmt: skip


def test_workers_of_other_machines_are_shown(tmp_path: Path) -> None:
    """Workers of other machines follow this machine's slots; lost workers are not shown."""
    elsewhere = WorkerState(slot="evaluator-0@b", role="evaluator", state="up", doing="timing",
                            since=10.0, leases=2, rtt_ms=3.0)  # fmt: skip
    dead = WorkerState(slot="evaluator-1@b", role="evaluator", state="lost", doing="", since=1.0)
    rows = worker_statuses({}, Snapshot(workers=(elsewhere, dead)), 15.0, 0.0)

    assert [("evaluator-0@b", "up", "timing", 5.0, 2)] == [
        (row.slot, row.state, row.activity, row.seconds, row.leases) for row in rows
    ]


def node(number: int, parent: int, verdict: Verdict) -> NodeView:
    return NodeView(
        task="t",
        number=number,
        parent=parent,
        advice="",
        verdict=verdict,
        score_us=verdict.median_us,
        at=float(number),
    )


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 2000)), max_size=60), st.data())
def test_a_cut_tree_keeps_the_best_and_no_node_without_its_parent(
    drawn: list[tuple[int, int]], data: st.DataObject
) -> None:
    """In a terminal of any size a tree is shown, within the rows."""
    nodes = tuple(
        node(number, pick % number, correct(float(us)))
        for number, (pick, us) in enumerate(drawn, start=1)
    )
    task = TaskState(name="t", budget=99, status="", nodes=nodes)
    rows = data.draw(st.integers(1, 80))
    shown = nodes_to_show(task, rows)
    numbers = {node.number for node in shown}
    assert len(shown) <= rows
    assert all(node.parent == 0 or node.parent in numbers for node in shown)
    if len(nodes) <= rows:
        assert len(shown) == len(nodes)


def test_the_model_line_names_roles_that_differ() -> None:
    """A user sees which model answers for which role."""
    from actors.supervisor.reporting.run_data import formatting

    settings = Settings(model="a", model_reason="as asked", coder_model="b")
    assert formatting.model_line(settings) == "a (as asked), coder: b"


def test_a_long_wait_for_the_model_is_shown_once(tmp_path: Path) -> None:
    """The log names a rate limit that delays the run; short waits add no lines."""
    Sample(tmp_path, nodes=(), status="running")
    reader, stream = RunReader(tmp_path), io.StringIO()
    screen, snapshot = PlainScreen(stream), poll(reader)

    def show(activity: str, at: float) -> None:
        worker = WorkerStatus(
            slot="planner-0", state="up", pid=1, restarts=0, activity=activity, seconds=1.0
        )
        screen.show(snapshot, (worker,), at)

    show("waiting for the model: 429, next try in 1 s", 0.0)
    show("asking m (gelu/1/plan)", 2.0)
    for second in range(3, 20):
        show("waiting for the model: 529, next try in 16 s", float(second))
    for second in range(20, 30):
        show("waiting for the task's import (limit 60 s) gelu", float(second))
        show("", float(second) + 0.5) if second == 20 else None
    assert stream.getvalue().splitlines()[1:] == [
        "planner-0: waiting for the model: 529, next try in 16 s",
        "planner-0: waiting for the task's import (5 s; limit 60 s) gelu",
    ]
    reader.close()


def test_an_evaluator_that_can_not_judge_says_why_once(tmp_path: Path) -> None:
    """On a full disk nothing is judged: without a line the log of such a run is silent."""
    Sample(tmp_path, nodes=(), status="running")
    reader, stream = RunReader(tmp_path), io.StringIO()
    screen, snapshot = PlainScreen(stream), poll(reader)
    worker = WorkerStatus(
        slot="evaluator-0", state="up", pid=1, restarts=0, activity="", seconds=None,
        cause="no room on the disk of /scratch: 0 MiB are free", is_quarantined=True,
    )  # fmt: skip
    for second in range(20):
        screen.show(snapshot, (worker,), float(second))
    assert stream.getvalue().splitlines()[1:] == [
        "evaluator-0: nothing is judged there: no room on the disk of /scratch: 0 MiB are free",
    ]


def test_work_that_no_machine_stays_long_enough_for_is_named(tmp_path: Path) -> None:
    """Jobs with too short a wall time hand the same work back for ever: a line says so."""
    sample = Sample(tmp_path, budget=30, status="running")
    reader = RunReader(tmp_path)

    def end_lease(epoch: int, work: str, seconds: float, outcome: str) -> None:
        sample.db.execute(
            "INSERT INTO lease (epoch, work, slot, incarnation, granted, ended, outcome, running)"
            " VALUES (?, ?, 'evaluator-0@a', 'x', 100.0, ?, ?, 1)",
            (epoch, work, 100.0 + seconds, outcome),
        )

    end_lease(1, "gelu/2/confirm", 56.2, "returned")
    end_lease(2, "gelu/2/confirm", 79.3, "returned")
    for epoch in (3, 4, 5):
        end_lease(epoch, "gelu/3/evaluate", 5.0, "lost")
    assert () == poll(reader).returned
    end_lease(6, "gelu/2/confirm", 25.1, "returned")
    sample.db.execute(
        "INSERT INTO event (at, what, subject, detail)"
        " VALUES (1.0, 'lease returned', 'gelu/2/confirm', ?)",
        (f"3bcab0ad5b8a29b8 {STOPPED_EARLY}",),
    )
    (one,) = poll(reader).returned
    assert (
        "gelu/2/confirm: handed back 3 times, after up to 79 s: stopped before it ended; its"
        " machines have to stay for longer (the wall time of a batch job)"
    ) == one.line
    end_lease(7, "gelu/2/confirm", 95.0, "done")  # each --resume named it again
    assert () == poll(reader).returned
    reader.close()
