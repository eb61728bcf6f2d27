"""Strategies under power cuts: the nodes equal the undisturbed run's.

`test_kills.py` tests the strategy `stark`.  `search` and `sampling` are not tested here: their
messages are those of `reflexion`.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fake_run import ROLES, FakeRun

from actors.coordinator.replay.verify import RunVerifier
from actors.coordinator.storage.read_only_database import ReadOnlyDatabase
from actors.coordinator.storage.store import Store
from protocol import settings as settings_file

BUDGET = 10


def nodes_after_power_cuts(
    run_dir: Path, strategy: str, *, cut_at_nodes: tuple[int, ...], in_flight: int = 1
) -> list[tuple]:
    """Return the nodes of a run; all processes are killed at each of these numbers of nodes."""
    run = FakeRun(run_dir, budget=BUDGET, strategy=strategy, in_flight=in_flight)
    run.start_all()
    try:
        for node_count in cut_at_nodes:
            while run.progress() < node_count:
                time.sleep(0.01)
            for role in ROLES:
                run.kill(role)
            run.revive()
        run.wait()
        assert [(BUDGET + 1,)] == run.rows("SELECT COUNT(*) FROM node")
        query = "SELECT work, COUNT(*) FROM call WHERE stop != 'lost' GROUP BY work"
        calls = run.rows(query)
        assert {count for _, count in calls} == {1}
        return run.nodes()
    finally:
        run.stop()


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["team", "reflexion"])
def test_power_cuts_do_not_change_the_tree(strategy: str, tmp_path: Path) -> None:
    """Nodes, parents, sources and outcomes are the same, and no reply is bought twice."""
    with ThreadPoolExecutor() as pool:
        undisturbed_run = pool.submit(
            nodes_after_power_cuts, tmp_path / "undisturbed", strategy, cut_at_nodes=()
        )
        nodes_with_cuts = nodes_after_power_cuts(tmp_path / "cut", strategy, cut_at_nodes=(3, 6))
    undisturbed_nodes = undisturbed_run.result()

    assert undisturbed_nodes == nodes_with_cuts
    assert any("words" in advice for *_, advice, _ in undisturbed_nodes) == (strategy != "team")


def test_power_cuts_under_several_attempts_keep_the_decisions(tmp_path: Path) -> None:
    """With three attempts under way and two power cuts, each choice and window still follows from
    the verdicts in their recorded order, and no reply is bought twice."""
    run_dir = tmp_path / "run"
    nodes_after_power_cuts(run_dir, "stark", cut_at_nodes=(3, 6), in_flight=3)
    database = ReadOnlyDatabase(run_dir)
    ((task, *_),) = Store(database).tasks()

    assert [] == RunVerifier(database, task, settings_file.read(run_dir)).differences()
    database.close()
