"""A run and its replay: real coordinator, real agents; a verdict is a function of the source."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from fake_run import FakeRun

from protocol import settings as settings_file
from protocol.values import AGENT_ROLES
from scripts import replay

TASK = """import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        y = torch.softmax(x * 0.5, dim=-1)
        return y + 1.0


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return []
"""
SCRIPT = "\n".join(
    [
        '{"role": "planner", "advice": "One pass."}',
        '{"role": "planner", "attempt": 4, "reply": "## Cannot\\n\\nNothing left."}',
        *(
            f'{{"role": "coder", "code": "class ModelNew: x = {n}", "advice": "Try {n}."}}'
            for n in range(7)
        ),
        *(f'{{"role": "debugger", "code": "class ModelNew: y = {n}"}}' for n in range(5)),
    ]
)


class AgentRun(FakeRun):
    """A run with the real planner, coder and debugger beside a fake evaluator."""

    def __init__(self, run_dir: Path, **settings: object) -> None:
        super().__init__(run_dir, **{"budget": 9, **settings})
        (run_dir / "tasks" / "t.py").write_text(TASK)

    def start(self, role: str) -> None:
        if role not in AGENT_ROLES:
            super().start(role)
            return
        argv = ["-m", "actors.agents", "--role", role, "--connect", "ipc://coordinator.sock"]
        argv += ["--slot", f"{role}-0", "--incarnation", os.urandom(8).hex()]
        self.start_command(role, argv)


def run_to_end(run_dir: Path, **settings: object) -> AgentRun:
    run = AgentRun(run_dir, **settings)
    run.start_all()
    try:
        run.wait()
    finally:
        run.stop()
    return run


@pytest.fixture(scope="module", params=["recipes stark", "script reflexion"])
def stored_run(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AgentRun:
    """A finished run of a model under a strategy."""
    folder = tmp_path_factory.mktemp("stored")
    (folder / "script.jsonl").write_text(SCRIPT)
    model, strategy = request.param.split()
    name = model if model == "recipes" else f"script:{folder / 'script.jsonl'}"
    return run_to_end(folder / "run", model=name, strategy=strategy)


def test_a_replay_gives_the_same_tree_on_another_machine_and_stops_at_its_end(
    stored_run: AgentRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replay has the same replies and nodes without a key and without cost, although times and
    ranks differ.  A replay with a larger attempt budget pauses at the first missing reply, names
    it, and keeps its nodes."""
    monkeypatch.setenv("FAKE_EAGER_US", "173.5")
    strategy = settings_file.read(stored_run.run_dir).strategy
    replayed = run_to_end(
        tmp_path / "run", model=f"replay:{stored_run.run_dir}", strategy=strategy, budget=12
    )
    calls = "SELECT work, reply FROM call ORDER BY id"
    ((status, reason),) = replayed.rows("SELECT status, reason FROM run")

    assert stored_run.nodes() == replayed.nodes()
    assert stored_run.rows(calls) == replayed.rows(calls)
    assert [(0.0,)] == replayed.rows("SELECT SUM(usd) FROM call")
    assert status == "blocked"
    assert "never asked for t/10/" in reason
    assert 0 == replay.main([str(replayed.run_dir)])


def test_a_stored_run_agrees_with_the_search(
    stored_run: AgentRun, capsys: pytest.CaptureFixture[str]
) -> None:
    """The search computes every stored choice, window, seed and request again."""
    assert 0 == replay.main([str(stored_run.run_dir)])
    assert "looked at 9 nodes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "expected_text"),
    [
        ("UPDATE node SET parent = (parent = 0) WHERE number = 8", "node 8: its parent is"),
        ("UPDATE node SET parent = 77 WHERE number = 8", "node 8: its parent is 77"),
        ("UPDATE node SET source = source || '#' WHERE number = 3", "node 3: its source"),
        ("UPDATE node SET advice = 'mine' WHERE number = 3", "node 3: its advice"),
        ("UPDATE node SET score_us = 1.5 WHERE number = 3", "node 3: its score is 1.5"),
        ("UPDATE node SET word = 'rejected' WHERE number = 3", "node 3: its word is rejected"),
        ("UPDATE decision SET parent = 9 WHERE number = 5", "attempt 5"),
        ("DELETE FROM decision WHERE number = 5", "decisions of attempts 5 are not recorded"),
        ("DELETE FROM decision WHERE number = 5 AND stage = 'evaluate'", "attempts 5 are"),
        ("UPDATE call SET request = request || 'x' WHERE work LIKE 't/2/%'", "t/2/"),
    ],
)
def test_an_altered_row_is_named(
    stored_run: AgentRun,
    tmp_path: Path,
    change: str,
    expected_text: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One row of a copied run.db is changed: status 1, and a line that names the row."""
    copy = tmp_path / "run"
    shutil.copytree(stored_run.run_dir, copy, ignore=shutil.ignore_patterns("*.sock"))
    with closing(sqlite3.connect(copy / "run.db", isolation_level=None)) as run:
        assert run.execute(change).rowcount

    assert 1 == replay.main([str(copy)])
    assert expected_text in capsys.readouterr().out


def test_a_folder_without_a_readable_run_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No folder, no database, an empty or an older database: status 2."""
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "stark.toml").write_text("")
    for folder in (tmp_path / "absent", empty):
        assert 2 == replay.main([str(folder)])
        assert 1 == len(capsys.readouterr().err.splitlines())
    (empty / "stark.toml").write_text('tasks = ["t"]')
    (empty / "run.db").write_bytes(b"")
    assert 2 == replay.main([str(empty)])
    assert "has not begun" in capsys.readouterr().err
    with closing(sqlite3.connect(empty / "run.db")) as old_run:
        old_run.executescript(
            "CREATE TABLE run (id); INSERT INTO run VALUES (1);"
            "CREATE TABLE task (name, source, settings); INSERT INTO task VALUES ('t', '', NULL);"
            "CREATE TABLE node (number)"
        )
    assert 2 == replay.main([str(empty)])
    assert "older version" in capsys.readouterr().err
