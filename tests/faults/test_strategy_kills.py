"""Strategies under a power cut: the ledger equals the undisturbed run's.

`test_kills.py` has STARK's; `search` and `sampling` send the messages that `reflexion` does.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fake_run import PLACES, FakeRun

from actors.coordinator.replay.verify import RunVerifier
from actors.coordinator.storage.read_only_database import ReadOnlyDatabase
from actors.coordinator.storage.store import Store
from protocol import settings as settings_file

BUDGET = 10


def nodes_of(
    run_dir: Path, strategy: str, *, cuts: tuple[int, ...], in_flight: int = 1
) -> list[tuple]:
    """Run to the end, killing every process at once when so many nodes are there."""
    run = FakeRun(run_dir, budget=BUDGET, strategy=strategy, in_flight=in_flight)
    run.start_all()
    try:
        for wanted in cuts:
            while run.progress() < wanted:
                time.sleep(0.01)
            for place in PLACES:
                run.kill(place)
            run.revive()
        run.wait()
        assert [(BUDGET + 1,)] == run.rows("SELECT COUNT(*) FROM node")
        answers = "SELECT work, COUNT(*) FROM call WHERE stop != 'lost' GROUP BY work"
        calls = run.rows(answers)
        assert {count for _, count in calls} == {1}
        return run.nodes()
    finally:
        run.stop()


@pytest.mark.parametrize("strategy", ["team", "reflexion"])
def test_a_power_cut_changes_no_strategys_tree(strategy: str, tmp_path: Path) -> None:
    """Nodes, parents, sources and words are the same, and no reply was bought twice."""
    with ThreadPoolExecutor() as pool:
        beside = pool.submit(nodes_of, tmp_path / "calm", strategy, cuts=())
        cut = nodes_of(tmp_path / "cut", strategy, cuts=(3, 6))
    calm = beside.result()

    assert calm == cut
    assert any("words" in advice for *_, advice, _ in calm) == (strategy != "team")


def test_several_under_way_and_power_cuts_leave_what_the_search_decides(tmp_path: Path) -> None:
    """Three expansions at once, everything killed twice: each choice and window still follows from
    the verdicts in their recorded order, and no reply was bought twice."""
    run_dir = tmp_path / "run"
    nodes_of(run_dir, "stark", cuts=(3, 6), in_flight=3)
    database = ReadOnlyDatabase(run_dir)
    ((task, *_),) = Store(database).tasks()

    assert [] == RunVerifier(database, task, settings_file.read(run_dir)).differences()
    database.close()
