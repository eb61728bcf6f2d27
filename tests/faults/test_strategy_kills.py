"""Strategies under a power cut: the ledger equals the undisturbed run's.

`test_kills.py` has STARK's; `search` and `sampling` send the messages that `reflexion` does.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from fake_run import PLACES, FakeRun

BUDGET = 10


def nodes_of(run_dir: Path, strategy: str, *, cuts: tuple[int, ...]) -> list[tuple]:
    """Run to the end, killing every process at once when so many nodes are there."""
    run = FakeRun(run_dir, budget=BUDGET, strategy=strategy)
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
    calm = nodes_of(tmp_path / "calm", strategy, cuts=())

    assert calm == nodes_of(tmp_path / "cut", strategy, cuts=(3, 6))
    assert any("words" in advice for *_, advice, _ in calm) == (strategy != "team")
