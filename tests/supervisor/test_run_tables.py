"""The views of run.db: what sqlite3 alone shows of a run."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from supervisor_sample import Sample, correct, failed

from actors.coordinator.storage.database import Database
from actors.supervisor.reporting.feed import feed_rows, feed_values
from actors.supervisor.reporting.run_data import run_tables
from actors.supervisor.reporting.run_data.run_reader import RunReader
from protocol.run_views import column_descriptions
from protocol.values import Outcome, Plan

OLDER_SCHEMA = Path(__file__).with_name("older_schema.sql")
VIEWS = ("tasks", "attempts", "verdicts", "calls", "leases")


def make_run(folder: Path) -> Sample:
    """Return a run of two tasks: one is over and confirmed, the other one goes on."""
    sample = Sample(folder, names=("gelu",), status="finished")
    sample.confirm("gelu", 3, correct(450.0))
    lucky = msgspec.structs.replace(correct(100.0), profile={"labels": "renamed_reference"})
    sample.add_task("nor_m", 9, ((1, 0, correct(700.0)), (2, 1, lucky)), "measured")
    plan = Plan(advice="fuse\nall", scaffold="")
    sample.db.execute(
        "INSERT INTO attempt (task, number, parent, kind, state, plan, advice)"
        " VALUES ('nor_m', 3, 1, 'improve', 'evaluate', ?, ?)",
        (msgspec.msgpack.encode(plan), plan.advice),
    )
    for number, stage in enumerate(("plan", "write", "evaluate"), start=1):
        sample.db.execute(
            'INSERT INTO decision (task, number, stage, parent, "window", seed, recorded)'
            " VALUES ('gelu', 3, ?, 2, '[]', 0, 2)",
            (stage,),
        )
        sample.db.execute(
            "INSERT INTO lease VALUES (?, 'gelu/3/' || ?, 'coder-0', 'x', 10.0, 12.5, 'done', 0)",
            (number, stage),
        )
    sample.add_call("gelu/3/plan", 0.25)
    sample.add_call("gelu/3/write", 0.5)
    sample.add_call("gelu/33/plan", 9.0)  # not of attempt 3
    sample.add_call("nor_m/1/plan", None)
    return sample


def make_older(sample: Sample) -> None:
    """Make a run as an older version left it: no views, no figures in columns."""
    db = sample.db
    db.execute("PRAGMA legacy_alter_table = ON")  # no other table's text changes by a new name
    for kind, name in db.execute("SELECT type, name FROM sqlite_schema WHERE sql != ''").fetchall():
        if kind in ("view", "index", "trigger"):
            db.execute(f"DROP {kind} {name}")
    query = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
    newer = [name for (name,) in db.execute(query)]
    for table in newer:
        db.execute(f"ALTER TABLE {table} RENAME TO newer_{table}")
    db.executescript(OLDER_SCHEMA.read_text(encoding="utf-8"))
    for table in newer:
        columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
        if columns:
            names = ", ".join(f'"{column}"' for column in columns)
            db.execute(
                f"INSERT INTO {table} ({names}) SELECT {names} FROM newer_{table}"  # noqa: S608
            )
        db.execute(f"DROP TABLE newer_{table}")


def all_rows(connection: sqlite3.Connection) -> dict[str, list[tuple[object, ...]]]:
    return {
        view: sorted(connection.execute(f"SELECT * FROM {view}"), key=repr)  # noqa: S608
        for view in VIEWS
    }


def read_only(folder: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{folder / 'run.db'}?mode=ro", uri=True)


@pytest.fixture
def sample(tmp_path: Path) -> Iterator[Sample]:
    made = make_run(tmp_path / "run")
    yield made
    made.db.close()


def test_every_column_is_explained(sample: Sample) -> None:
    """`columns.csv` of an export has each column of each view, in its order, and no other one."""
    columns = [
        (view, column[0])
        for view in VIEWS
        for column in sample.db.execute(f"SELECT * FROM {view}").description  # noqa: S608
    ]
    described = [(one.table, one.column) for one in column_descriptions()]
    assert columns == described
    assert all(one.meaning for one in column_descriptions())


def test_an_attempt_is_one_row_with_its_figures_stages_and_cost(sample: Sample) -> None:
    """A person reads an attempt with sqlite3 alone: idea, verdict, interval, seconds, dollars."""
    query = (
        "SELECT parent, kind, state, idea, verdict, speedup, low, high, us, confirmed, build_s,"
        " check_s, timing_s, stages, calls, usd, input_tokens, output_tokens, model_s"
        " FROM attempts WHERE task = 'gelu' AND number = 3"
    )
    (row,) = sample.db.execute(query).fetchall()
    ratio = 1000.0 / 450.0
    assert row[:5] == (2, "improve", "done", "advice <3>", "correct")
    assert row[5:10] == (ratio, ratio * 0.99, ratio * 1.01, 450.0, 1)
    assert row[10:] == (1.0, 0.5, 0.5, "plan write evaluate", 2, 0.75, 200, 40, 2.0)
    unpriced = "SELECT usd FROM attempts WHERE task = 'nor_m' ORDER BY number"
    assert [(None,), (0.0,), (0.0,)] == sample.db.execute(unpriced).fetchall()


def test_what_a_person_did_is_marked(sample: Sample) -> None:
    """A table of attempts says which ones a person pinned, pruned or put in."""
    sample.db.execute("UPDATE node SET pinned = 1 WHERE number = 1")
    sample.db.execute("UPDATE node SET pruned = 2 WHERE number = 2")
    sample.db.execute("UPDATE attempt SET kind = 'inject' WHERE number = 3")
    query = "SELECT number FROM attempts WHERE task = 'gelu' AND (pinned, pruned, kind) = (?, ?, ?)"
    marks = ((1, 0, "improve"), (0, 1, "improve"), (0, 0, "inject"))
    assert [[(1,)], [(2,)], [(3,)]] == [sample.db.execute(query, one).fetchall() for one in marks]


def test_an_attempt_under_way_shows_its_stage_and_idea(sample: Sample) -> None:
    """What is tried now is visible before there is a verdict, on one line."""
    query = "SELECT state, idea, verdict, speedup FROM attempts WHERE verdict IS NULL"
    assert [("evaluate", "fuse all", None, None)] == sample.db.execute(query).fetchall()


def test_a_confirmed_node_has_two_verdicts(sample: Sample) -> None:
    """The first look, by which the search went, stays beside the confirmation."""
    query = "SELECT look, us FROM verdicts WHERE task = 'gelu' AND number = 3 ORDER BY look"
    assert [("confirmation", 450.0), ("first look", 400.0)] == sample.db.execute(query).fetchall()
    assert 1 == sample.db.execute("SELECT COUNT(*) FROM verdicts WHERE number = 4").fetchone()[0]


def test_the_best_of_a_task_is_the_same_as_everywhere(sample: Sample) -> None:
    """The view and `TaskState.best` agree: confirmed first, never the reference's own module."""
    reader = RunReader(sample.path)
    snapshot = reader.poll()
    assert snapshot is not None
    expected = [(task.name, task.best and task.best.number) for task in snapshot.tasks]
    reader.close()
    assert [("gelu", 3), ("nor_m", 1)] == expected
    assert expected == sample.db.execute("SELECT task, best FROM tasks").fetchall()


def test_columns_say_what_the_stored_verdict_says(sample: Sample) -> None:
    """A figure in a column is the figure of the verdict that programs read."""
    rows = {
        (row.task, row.number): row
        for row in run_tables.attempt_rows(prepared(sample.path))
        if row.verdict is not None
    }
    reader = RunReader(sample.path)
    snapshot = reader.poll()
    assert snapshot is not None
    for task in snapshot.tasks:
        for node in task.attempts:
            row, verdict = rows.pop((task.name, node.number)), node.verdict
            assert (row.verdict, row.reason) == (verdict.verdict, verdict.reason)
            assert row.speedup == verdict.speedup
            assert (row.low, row.high) == (verdict.speedup_ci95 or (None, None))
            assert (row.us, row.confirmed, row.at) == (node.score_us, node.confirmed, node.at)
    reader.close()
    assert {} == rows


def prepared(folder: Path) -> sqlite3.Connection:
    connection = read_only(folder)
    run_tables.prepare_views(connection)
    return connection


def test_an_older_run_is_read_as_this_version_would_have_written_it(sample: Sample) -> None:
    """A run that is never resumed has no such columns: they are computed while it is read."""
    expected = all_rows(sample.db)
    make_older(sample)
    with closing(prepared(sample.path)) as connection:
        assert expected == all_rows(connection)


def test_an_older_run_without_first_looks_and_decisions_is_read(sample: Sample) -> None:
    """The oldest runs stored neither; what they stored is shown."""
    make_older(sample)
    for statement in (
        "DROP VIEW spend",
        "DROP TABLE first_look",
        "DROP TABLE decision",
        "ALTER TABLE node DROP COLUMN confirmed",
        "ALTER TABLE call DROP COLUMN effort",
    ):
        sample.db.execute(statement)
    with closing(prepared(sample.path)) as connection:
        rows = list(run_tables.attempt_rows(connection, "gelu"))
        assert [1, 2, 3, 4, 5, 6] == [row.number for row in rows]
        assert ([None] * 6, [False] * 6) == (
            [row.stages for row in rows],
            [row.confirmed for row in rows],
        )
        assert "" == connection.execute("SELECT effort FROM calls").fetchone()[0]


def test_a_resumed_older_run_has_all_columns(sample: Sample) -> None:
    """After a resume sqlite3 alone shows the old attempts, too."""
    expected = all_rows(sample.db)
    make_older(sample)
    Database(sample.path).close()
    with closing(read_only(sample.path)) as connection:
        assert expected == all_rows(connection)


def test_columns_are_filled_once(sample: Sample) -> None:
    """A start of the coordinator does not read every verdict again."""
    sample.db.execute("UPDATE node SET reason = 'as it was'")
    Database(sample.path).close()
    reasons = sample.db.execute("SELECT DISTINCT reason FROM node").fetchall()
    assert [("as it was",)] == reasons


def test_a_failed_migration_changes_nothing(sample: Sample) -> None:
    """New columns and their values come together: a kill in between leaves the older run."""
    make_older(sample)
    sample.db.execute("UPDATE node SET verdict = x'ff' WHERE number = 4")
    before = sample.db.execute("SELECT name, sql FROM sqlite_schema ORDER BY name").fetchall()
    with pytest.raises(sqlite3.OperationalError):
        Database(sample.path)
    after = sample.db.execute("SELECT name, sql FROM sqlite_schema ORDER BY name").fetchall()
    assert before == after


def test_the_page_shows_the_same_figures(sample: Sample) -> None:
    """The page reads nodes in its own way, for its speed; a node's figures are the view's."""
    names = ("number", "parent", "kind", "verdict", "reason", "speedup", "low", "high", "us",
             "confirmed", "at", "usd", "build_s", "check_s", "timing_s")  # fmt: skip
    with closing(prepared(sample.path)) as connection:
        tasks = {task.name: task for task in feed_rows.tasks(connection)}
        spends = feed_rows.spends(connection)
        shown = {}
        for row in feed_rows.nodes(connection):
            key = row.view.task, row.view.number
            spend = spends.get(key, feed_rows.NodeSpend())
            shown[key] = feed_values.node_summary(tasks[row.view.task], row, spend)
        stored = {
            (row.task, row.number): row
            for row in run_tables.attempt_rows(connection)
            if row.verdict is not None
        }
    for key, row in stored.items():
        page = shown[key]
        assert [getattr(row, name) for name in names] == [getattr(page, name) for name in names]
        assert row.input_tokens + row.output_tokens == page.tokens


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    """Quotes, markup and control characters of a candidate's words change no query."""
    sample = Sample(tmp_path, names=("a'b",), nodes=(), status="running")
    words = "'; DROP TABLE node; -- <img onerror=x> \x1b[2J\r\nnext"
    sample.add_node("a'b", 1, 0, failed(Outcome.WRONG, words, "check"))
    with closing(prepared(tmp_path)) as connection:
        (row,) = run_tables.attempt_rows(connection, "a'b")
    assert words == row.reason
