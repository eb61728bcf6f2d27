"""The numbers that processes rely on when they end: exit statuses and deadlines."""

from __future__ import annotations

from actors import deadlines
from actors.exit_status import ExitStatus


def test_the_numbers_of_exit_statuses_are_fixed() -> None:
    """Scripts of users and batch systems test these numbers."""
    expected = {"DONE": 0, "NEGATIVE": 1, "USAGE": 2, "STOPPED": 3, "FAULT": 4, "REFUSED": 5}
    assert expected == {status.name: status.value for status in ExitStatus}


def test_an_outer_process_waits_longer_than_the_inner_ones() -> None:
    """Otherwise a supervisor kills workers that are handing back their work."""
    assert deadlines.WORKER_DRAIN_S <= deadlines.COORDINATOR_DRAIN_S
    assert deadlines.WORKER_DRAIN_S < deadlines.GUEST_DRAIN_S < deadlines.RUN_DRAIN_S
    assert deadlines.COORDINATOR_DRAIN_S < deadlines.RUN_DRAIN_S
    assert deadlines.CANCEL_JOBS_S < deadlines.TERMINATE_S
