"""Chaos itself: a short one with a fixed seed loses nothing, and a loss would be seen."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from scripted_run import TOP

from scripts.faults.ledger_diff import RunLedger


def chaos(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(TOP / "scripts" / "chaos.py"), *arguments],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.long
def test_a_short_chaos_loses_nothing(tmp_path: Path) -> None:
    """Two machines, kills, stops, partitions, noise, a full disk: the undisturbed run's ledger."""
    done = chaos("--cheap", "--minutes", "0.2", "--machines", "2", "--seed", "7",
                 "--keep", str(tmp_path / "runs"))  # fmt: skip
    counted = dict(
        re.findall(r"^  (survived|lost|doubled|orphans|trouble) +(\d+)$", done.stdout, re.M)
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert {"lost": "0", "doubled": "0", "orphans": "0", "trouble": "0"}.items() <= counted.items()
    assert int(counted["survived"]) > 0


def test_what_is_lost_or_doubled_is_counted() -> None:
    """A missing line, a changed one and one that is there twice each make the ledgers differ."""
    calm = RunLedger(rows=(("node", "t", 1, "a"), ("call", "w", "q")))
    same = RunLedger(rows=(("call", "w", "q"), ("node", "t", 1, "a")))
    other = RunLedger(rows=(("node", "t", 1, "b"), ("call", "w", "q"), ("call", "w", "q")))

    assert ((), ()) == (calm.lost(same), calm.doubled(same))
    assert (("node", "t", 1, "a"),) == calm.lost(other)
    assert {("node", "t", 1, "b"), ("call", "w", "q")} == set(calm.doubled(other))


@pytest.mark.parametrize(
    "arguments",
    [("--minutes", "0"), ("--minutes", "x"), ("--seed", "x"), ("--machines", "0"), ("--what",)],
)
def test_a_wrong_flag_is_one_line(arguments: tuple[str, ...]) -> None:
    """Exit status 2, and nothing begins."""
    done = chaos(*arguments)
    assert (2, "", 1) == (done.returncode, done.stdout, len(done.stderr.splitlines()))
