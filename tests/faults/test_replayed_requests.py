"""Requests of a stored run are compared only with what their own version of the prompts writes."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from in_process_run import InProcessRun, MakeRun

from actors.agents.requests.request_version import request_version


def store_call(run: InProcessRun, attempt: int, version: str) -> None:
    """Record a call that asked something else than what follows from the tree."""
    with closing(sqlite3.connect(run.run_dir / "run.db")) as database, database:
        database.execute(
            "INSERT INTO call (work, role, model, request, reply, stop, request_version,"
            " input_tokens, cached_tokens, output_tokens, seconds, at)"
            " VALUES (?, 'planner', 'fake', 'another text', '', 'end_turn', ?, 0, 0, 0, 0, 0)",
            (f"t/{attempt}/plan", version),
        )


def test_a_request_of_another_version_is_no_difference(
    make_run: MakeRun, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line counts those of each other version, also where the run does not say which; a
    request of this very version that does not follow from the tree differs."""
    run = make_run(tasks=("t",), budget=8)
    run.run_out()
    planned = [number for (number,) in run.rows("SELECT number FROM decision WHERE stage = 'plan'")]
    for number, version in zip(planned, ("0123456789abcdef", "0123456789abcdef", ""), strict=False):
        store_call(run, number, version)
    assert [] == run.differences()
    lines = capsys.readouterr().out.splitlines()
    assert "and 3 requests" in lines[0]
    known, unknown = lines[1:]
    assert known.startswith("2 requests not compared: the prompts of this version (")
    assert known.endswith("differ from the run's (0123456789abcdef)")
    assert unknown.startswith("1 request not compared")
    assert "too old to say which version" in unknown

    store_call(run, planned[3], request_version())
    (line,) = run.differences()
    assert line.startswith(
        f"t/{planned[3]}/plan: its request differs from line 1 on: stored 'another text'"
    )


def test_a_run_without_the_column_is_compared_all_the_same(
    make_run: MakeRun, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its calls were stored by a version that knew of no versions; what follows of the tree is
    looked at as ever."""
    run = make_run(tasks=("t",), budget=2)
    run.run_out()
    store_call(run, 1, "")
    with closing(sqlite3.connect(run.run_dir / "run.db")) as database, database:
        database.execute("ALTER TABLE call DROP COLUMN request_version")
        database.execute("UPDATE node SET advice = 'another' WHERE number = 2")
    assert ["t: node 2: its advice is not the attempt's plan"] == run.differences()
    assert "the run is too old to say" in capsys.readouterr().out
