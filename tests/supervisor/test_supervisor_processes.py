"""Real processes: started, watched, restarted, and ended with their descendants."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SCENES = Path(__file__).with_name("supervisor_scenes.py")


def play(name: str, folder: Path) -> dict[str, Any]:
    """Run one scene in a process of its own; return its observations."""
    done = subprocess.run(
        [sys.executable, str(SCENES), name, str(folder)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        start_new_session=True,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def test_a_grandchild_that_escaped_with_setsid_dies_with_its_tree(tmp_path: Path) -> None:
    """No descendant outlives its child, also in another session."""
    seen = play("tree_dies", tmp_path)
    assert seen["started"]
    assert (-9, "signal 9 (SIGKILL)") == (seen["status"], seen["how"])
    assert seen["swept"] >= 2
    assert not seen["alive"]
    assert seen["children"] == 0


def test_a_child_notices_the_end_of_its_supervisor(tmp_path: Path) -> None:
    """Only the supervisor holds the write end of the lifeline: its death is the end of file."""
    note = Path(play("lifeline", tmp_path)["note"])
    give_up = time.monotonic() + 20
    while not note.exists() and time.monotonic() < give_up:
        time.sleep(0.01)
    assert note.exists()


def test_orphans_are_found_by_the_runs_mark_and_ended(tmp_path: Path) -> None:
    """A resume ends every process of the run, also escaped grandchildren, and no other process."""
    seen = play("leftover_processes", tmp_path)
    assert seen["found"] >= 3
    assert (0, 0) == (seen["left"], seen["other"])


def test_a_child_that_can_not_live_ends_the_run_and_says_why(tmp_path: Path) -> None:
    """It is a fault with the slot, the number of deaths and the last output; no process is left."""
    seen = play("too_often", tmp_path)
    assert seen["kind"] == "fault"
    assert "coder-0 died more than 2 times in 60 s" in seen["why"]
    assert "no such prompt" in seen["why"]
    assert seen["starts"]["coder-0"] == 3
    assert seen["left"] == 0


def test_evaluators_that_candidates_kill_do_not_end_the_run(tmp_path: Path) -> None:
    """Each candidate gets two evaluators and a verdict; the supervisor restarts the evaluator."""
    seen = play("candidates_doing", tmp_path)
    assert seen["kind"] == "stopped"
    assert seen["starts"]["evaluator-0"] == 6
    assert seen["left"] == 0


def test_the_coordinators_end_is_the_runs_end(tmp_path: Path) -> None:
    """A coordinator with exit status 0 is not restarted; a child that ignores SIGTERM is killed."""
    seen = play("coordinator_ends", tmp_path)
    assert ("over", 1, 0) == (seen["kind"], seen["starts"]["coordinator"], seen["left"])


def test_a_loss_reaches_the_next_coordinator(tmp_path: Path) -> None:
    """A worker that dies while the coordinator is dead is reported to the next coordinator."""
    seen = play("coordinator_returns", tmp_path)
    assert "evaluator-0: signal 9 (SIGKILL)" in seen["losses"].splitlines()
    assert ("over", 2, 2) == (
        seen["kind"],
        seen["starts"]["coordinator"],
        seen["starts"]["evaluator-0"],
    )
    assert "coordinator died (signal 9 (SIGKILL)): starts again at once" in seen["printed"]
    assert seen["left"] == 0


def test_a_hung_coordinator_is_replaced(tmp_path: Path) -> None:
    """Its process lives, so only its silence shows the fault; the run does not wait for ever."""
    seen = play("coordinator_hangs", tmp_path)
    assert "coordinator does not answer any more: killed" in seen["printed"]
    assert ("over", 2, 0) == (seen["kind"], seen["starts"]["coordinator"], seen["left"])


def test_a_silent_worker_is_replaced_once(tmp_path: Path) -> None:
    """The process of a silent worker is killed, the next one in the slot is not."""
    seen = play("silent_worker", tmp_path)
    assert 1 == seen["printed"].count("evaluator-0 says nothing any more: killed")
    assert ["evaluator-0: signal 9 (SIGKILL)"] == seen["losses"].splitlines()
    assert (2, 0) == (seen["starts"]["evaluator-0"], seen["left"])


def test_a_worker_that_is_stopped_at_its_start_is_replaced(tmp_path: Path) -> None:
    """The coordinator has never heard of this worker, so it can't report its silence."""
    seen = play("stopped_worker", tmp_path)
    assert "evaluator-0 has been stopped for 0 s: killed" in seen["printed"]
    assert (2, 0) == (seen["starts"]["evaluator-0"], seen["left"])


def test_the_second_interrupt_stops_at_once(tmp_path: Path) -> None:
    """The first drains; the second kills, even where the coordinator hangs."""
    seen = play("two_interrupts", tmp_path)
    assert ("stopped", "stopped at once by Ctrl-C", 0) == (seen["kind"], seen["why"], seen["left"])
    assert "stopped by SIGTERM" in seen["printed"]


def test_a_drain_has_a_deadline(tmp_path: Path) -> None:
    """--max-minutes drains; a coordinator that hangs does not delay the end for ever."""
    seen = play("time_is_up", tmp_path)
    assert ("stopped", 0) == (seen["kind"], seen["left"])
    assert "--max-minutes 0.01 are over; not all ended in time" == seen["why"]


def test_a_run_whose_folder_is_gone_ends(tmp_path: Path) -> None:
    """It would go on in files without a path, and everything that it buys would be lost."""
    (tmp_path / "run").mkdir()
    seen = play("folder_moved", tmp_path / "run")
    assert ("fault", 0, False) == (seen["kind"], seen["left"], seen["made_again"])
    assert "run, or the lock in it, was moved or removed: put it back, then resume" == seen["why"]


def test_a_run_whose_store_is_removed_ends(tmp_path: Path) -> None:
    """The coordinator would go on in a file without a path until all attempts are made."""
    (tmp_path / "run").mkdir()
    seen = play("store_removed", tmp_path / "run")
    assert ("fault", 0, False) == (seen["kind"], seen["left"], seen["made_again"])
    assert "run/run.db was moved or removed: put it back, then resume" == seen["why"]
