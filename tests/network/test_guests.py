"""The supervisor of a joined machine: kills, refusals, and stable slots."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from shutil import ignore_patterns

import pytest
from net_run import ENVIRONMENT, ROOT, NetRun

from actors.supervisor.reporting.run_data import run_results
from actors.supervisor.reporting.run_data.snapshot import Snapshot, TaskState
from protocol import key_ring, tickets


def join(
    run: NetRun, *arguments: str, ticket: Path | None = None, name: str = "guest"
) -> subprocess.Popen[str]:
    ticket = ticket or run.run_dir / "ticket.json"
    guest = subprocess.Popen(
        [sys.executable, str(ROOT / "supervisor.py"), "--join", str(ticket),
         "--run-dir", str(run.guest.with_name(name)), *arguments],
        cwd=run.guest, env=ENVIRONMENT, text=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    run.guests.append(guest)
    return guest


def wait_until(condition: Callable[[], object], seconds: float = 40.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def workers(run: NetRun) -> dict[str, tuple[int, int]]:
    """Return slot -> (pid, starts) of the planners that are up."""
    rows = run.rows("SELECT slot, pid, starts FROM worker WHERE role = 'planner'")
    return {slot: (pid, starts) for slot, pid, starts in rows}


def test_a_killed_guest_leaves_no_process_and_comes_back_with_its_slots(run: NetRun) -> None:
    """Its workers die with it.

    The next one has the same slots, which proves the former workers dead.
    """
    guest = join(run, "--planners", "1")
    wait_until(lambda: workers(run))
    ((slot, (pid, _)),) = workers(run).items()
    assert slot.startswith("planner-0@")
    assert slot.endswith(f".{run.ticket.name}")
    assert (run.guest / "keys" / "planner.json").stat().st_mode & 0o777 == 0o600
    guest.kill()
    guest.communicate()
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
    again = join(run, "--planners", "1")
    wait_until(lambda: workers(run)[slot][1] == 2)
    os.kill(again.pid, signal.SIGTERM)
    out, err = again.communicate(timeout=40)
    assert (0, "") == (again.returncode, err)
    assert "asked to leave by SIGTERM" in out
    assert not (run.guest / "keys").exists()


def test_a_batch_system_that_cancels_a_leaving_guest_does_not_make_it_a_failure(
    run: NetRun,
) -> None:
    """The first signal to a guest that leaves already is no second one: the status stays 0."""
    guest = join(run, "--planners", "1", "--max-minutes", "0.05")
    wait_until(lambda: workers(run))
    ((_, (pid, _)),) = workers(run).items()
    os.kill(pid, signal.SIGSTOP)  # so that leaving takes a while
    log = run.guest / "logs" / "supervisor.log"
    wait_until(lambda: "leaving" in log.read_text(encoding="utf-8"))
    os.kill(guest.pid, signal.SIGTERM)
    time.sleep(0.5)  # the guest reads the signal while its planner is still stopped
    os.kill(pid, signal.SIGCONT)
    out, err = guest.communicate(timeout=40)
    assert (0, "") == (guest.returncode, err)
    assert "--max-minutes are over" in out


def test_two_guests_with_copies_of_one_folder(run: NetRun) -> None:
    """A machine image with a guest's folder in it runs twice: the first leaves, with the reason."""
    first = join(run, "--planners", "1")
    wait_until(lambda: workers(run))
    shutil.copytree(run.guest, run.guest.with_name("copy"), ignore=ignore_patterns("*.sock"))
    second = join(run, "--planners", "1", name="copy")
    _, err = first.communicate(timeout=40)
    assert (2, 1) == (first.returncode, len(err.splitlines()))
    assert "copies of one folder" in err
    assert second.poll() is None
    os.kill(second.pid, signal.SIGTERM)
    second.communicate(timeout=40)
    assert 0 == second.returncode


def test_a_revoked_guest_ends_with_one_line(run: NetRun) -> None:
    """The line gives the reason, and the status is 2, while connected and at the next join."""
    guest = join(run, "--planners", "1")
    wait_until(lambda: workers(run))
    known = key_ring.read(run.run_dir)
    assert known is not None
    key_ring.write(run.run_dir, known.with_ticket_revoked(run.ticket.name))
    _, err = guest.communicate(timeout=40)
    assert (2, 1) == (guest.returncode, len(err.splitlines()))
    assert "revoked" in err
    again = join(run, "--planners", "1")
    _, err = again.communicate(timeout=40)
    assert (2, 1) == (again.returncode, len(err.splitlines()))
    assert "revoked" in err


def test_a_run_with_an_unknown_setting_is_not_served(run: NetRun) -> None:
    """A machine that does not know one of the run's rules must not judge by the others.

    The error is one line.  A role that the ticket is not for is refused before connecting.
    """
    text = (run.run_dir / "stark.toml").read_text()
    from actors.cli import UsageError
    from actors.supervisor.cli.flags import parse_arguments
    from actors.supervisor.guest_machine import local_settings
    from actors.supervisor.join import processes_by_role
    from protocol.values import Role

    wanted = dict.fromkeys((Role.PLANNER, Role.CODER, Role.DEBUGGER, Role.EVALUATOR), 1)
    arguments = parse_arguments(["--join", "x", "--min-sandbox", "3"])
    assert local_settings(text, wanted, arguments).min_sandbox == 3
    with pytest.raises(UsageError, match="not known here"):
        local_settings(
            text.replace("[rules]", "[rules]\nfaster_than_light = true"), wanted, arguments
        )
    narrow = run.issue(run.guest / "narrow.json", (Role.EVALUATOR,))
    with pytest.raises(UsageError, match="not for planners"):
        processes_by_role(parse_arguments(["--join", "x", "--planners", "1"]), narrow, ())
    assert (
        processes_by_role(parse_arguments(["--join", "x"]), narrow, ("0", "1"))[Role.EVALUATOR] == 2
    )
    assert tickets.read(run.guest / "narrow.json") == narrow


def test_a_guest_leaves_a_silent_run_after_max_wait(run: NetRun, tmp_path: Path) -> None:
    """After a power loss of the run's machine, its guest ends with its workers.

    A guest that comes later waits for `--max-wait`: one line, status 3.  To a guest, a finished run
    looks like one that has not begun; but a ticket in the folder of a finished run ends the join at
    once with status 0.
    """
    copy = tmp_path / "ticket.json"
    tickets.write(copy, run.ticket)
    roles = ("--planners", "1")
    guest = join(run, *roles, "--max-wait", "0.01", ticket=copy)
    wait_until(lambda: workers(run))
    ((pid, _),) = workers(run).values()
    run.kill("coordinator")
    over = Snapshot(status="finished", tasks=(TaskState(name="t", budget=2, status="finished"),))
    run_results.write_result(run.run_dir, run_results.run_results(over, run.settings))
    early = join(run, *roles, "--max-wait", "0.01", ticket=copy, name="early")
    late = join(run, *roles, name="late")

    out, err = late.communicate(timeout=40)
    assert (0, "") == (late.returncode, err)
    assert "the run is finished" in out
    out, err = early.communicate(timeout=40)
    assert (3, 1) == (early.returncode, len(err.splitlines()))
    assert "not heard of for 0.01 minutes (--max-wait)" in err
    assert "waiting for it, 0.01 minutes at most" in out
    out, err = guest.communicate(timeout=40)
    assert (3, 1) == (guest.returncode, len(err.splitlines()))
    assert "not heard of" in err
    assert not Path(f"/proc/{pid}").exists()
