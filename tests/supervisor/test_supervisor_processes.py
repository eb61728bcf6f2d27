"""Real processes: started, watched, restarted, and gone with all that they started."""

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
    """Play one scene in a process of its own; return what it saw."""
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
    """Nothing that a child started outlives it, whatever session it hid in."""
    seen = play("tree_dies", tmp_path)
    assert seen["started"]
    assert (-9, "signal 9 (SIGKILL)") == (seen["status"], seen["how"])
    assert seen["swept"] >= 2
    assert not seen["alive"]
    assert seen["children"] == 0


def test_a_child_notices_that_its_supervisor_is_gone(tmp_path: Path) -> None:
    """The write end of the lifeline is held by the supervisor alone: its death is end of file."""
    note = Path(play("lifeline", tmp_path)["note"])
    give_up = time.monotonic() + 20
    while not note.exists() and time.monotonic() < give_up:
        time.sleep(0.01)
    assert note.exists()


def test_leftovers_are_found_by_the_runs_mark_and_ended(tmp_path: Path) -> None:
    """Resuming ends every process of the run, escaped grandchildren too, and no other."""
    seen = play("leftover_processes", tmp_path)
    assert seen["found"] >= 3
    assert (0, 0) == (seen["left"], seen["other"])


def test_a_child_that_can_not_live_ends_the_run_and_says_why(tmp_path: Path) -> None:
    """Intensity exceeded: a fault, with who, how often and its last words; nothing left."""
    seen = play("too_often", tmp_path)
    assert seen["kind"] == "fault"
    assert "coder-0 died more than 2 times in 60 s" in seen["why"]
    assert "no such prompt" in seen["why"]
    assert seen["starts"]["coder-0"] == 3
    assert seen["left"] == 0


def test_what_candidates_do_to_an_evaluator_ends_no_run(tmp_path: Path) -> None:
    """Each of them gets two evaluators and a verdict; the supervisor goes on starting others."""
    seen = play("candidates_doing", tmp_path)
    assert seen["kind"] == "stopped"
    assert seen["starts"]["evaluator-0"] == 6
    assert seen["left"] == 0


def test_the_coordinators_end_is_the_runs_end(tmp_path: Path) -> None:
    """Exit status 0 of the coordinator is not restarted, and a deaf child is killed."""
    seen = play("coordinator_ends", tmp_path)
    assert ("over", 1, 0) == (seen["kind"], seen["starts"]["coordinator"], seen["left"])


def test_a_loss_reaches_the_next_coordinator(tmp_path: Path) -> None:
    """A worker that dies while the coordinator is dead is reported to its successor."""
    seen = play("coordinator_returns", tmp_path)
    assert "evaluator-0: signal 9 (SIGKILL)" in seen["losses"].splitlines()
    assert ("over", 2, 2) == (
        seen["kind"],
        seen["starts"]["coordinator"],
        seen["starts"]["evaluator-0"],
    )
    assert "coordinator died (signal 9 (SIGKILL)): starts again at once" in seen["said"]
    assert seen["left"] == 0


def test_a_hung_coordinator_is_replaced(tmp_path: Path) -> None:
    """It lives, so only its silence tells; the run does not wait for ever."""
    seen = play("coordinator_hangs", tmp_path)
    assert "coordinator answers no more: killed" in seen["said"]
    assert ("over", 2, 0) == (seen["kind"], seen["starts"]["coordinator"], seen["left"])


def test_a_silent_worker_is_replaced_once(tmp_path: Path) -> None:
    """The coordinator hears a worker no more: that process is killed, its successor is not."""
    seen = play("silent_worker", tmp_path)
    assert 1 == seen["said"].count("evaluator-0 says nothing any more: killed")
    assert ["evaluator-0: signal 9 (SIGKILL)"] == seen["losses"].splitlines()
    assert (2, 0) == (seen["starts"]["evaluator-0"], seen["left"])


def test_a_worker_stopped_at_its_first_step_is_replaced(tmp_path: Path) -> None:
    """Nobody has ever heard of it, so nobody could miss it."""
    seen = play("stopped_worker", tmp_path)
    assert "evaluator-0 has been stopped for 0 s: killed" in seen["said"]
    assert (2, 0) == (seen["starts"]["evaluator-0"], seen["left"])


def test_the_second_interrupt_stops_at_once(tmp_path: Path) -> None:
    """The first drains; the second kills, even where the coordinator hangs."""
    seen = play("two_interrupts", tmp_path)
    assert ("stopped", "stopped at once by Ctrl-C", 0) == (seen["kind"], seen["why"], seen["left"])
    assert "stopped by SIGTERM" in seen["said"]


def test_a_drain_has_an_end(tmp_path: Path) -> None:
    """--max-minutes drains, and a coordinator that hangs does not keep the user waiting."""
    seen = play("time_is_up", tmp_path)
    assert ("stopped", 0) == (seen["kind"], seen["left"])
    assert "--max-minutes 0.01 are over; not all ended in time" == seen["why"]
