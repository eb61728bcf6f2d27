"""`scripts/chaos.py`: a short chaos run with a fixed seed loses nothing; a loss is counted."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from fake_run import TOP

from scripts.faults.ledger_diff import RunLedger


def chaos(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(TOP / "scripts" / "chaos.py"), *arguments],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.long
def test_a_short_chaos_loses_nothing(tmp_path: Path) -> None:
    """Kills, stops, partitions, noise and full disks on two machines do not change the ledger."""
    process = chaos("--cheap", "--minutes", "0.2", "--machines", "2", "--seed", "7",
                 "--keep", str(tmp_path / "runs"))  # fmt: skip
    counts = dict(
        re.findall(r"^  (survived|lost|doubled|orphans|trouble) +(\d+)$", process.stdout, re.M)
    )

    assert process.returncode == 0, process.stdout + process.stderr
    assert {"lost": "0", "doubled": "0", "orphans": "0", "trouble": "0"}.items() <= counts.items()
    assert int(counts["survived"]) > 0


def test_lost_and_doubled_rows_are_counted() -> None:
    """A changed row counts as lost and as doubled, an additional copy of a row as doubled."""
    undisturbed = RunLedger(rows=(("node", "t", 1, "a"), ("call", "w", "q")))
    same = RunLedger(rows=(("call", "w", "q"), ("node", "t", 1, "a")))
    other = RunLedger(rows=(("node", "t", 1, "b"), ("call", "w", "q"), ("call", "w", "q")))

    assert ((), ()) == (undisturbed.lost(same), undisturbed.doubled(same))
    assert (("node", "t", 1, "a"),) == undisturbed.lost(other)
    assert {("node", "t", 1, "b"), ("call", "w", "q")} == set(undisturbed.doubled(other))


@pytest.mark.parametrize(
    "arguments",
    [("--minutes", "0"), ("--minutes", "x"), ("--seed", "x"), ("--machines", "0"), ("--what",)],
)
def test_a_wrong_flag_is_one_line(arguments: tuple[str, ...]) -> None:
    """Exit status 2, one line on stderr, and no run."""
    process = chaos(*arguments)
    assert (2, "", 1) == (process.returncode, process.stdout, len(process.stderr.splitlines()))
