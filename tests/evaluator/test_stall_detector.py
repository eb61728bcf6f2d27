"""What tells a call that prepares something from one that only waits or computes."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from actors.evaluator.sandbox import stall_detector
from actors.evaluator.sandbox.stall_detector import StallDetector, WorkCounts, work_counts

LOOPS = "print(flush=True)\nwhile True: pass"
TAKES_MEMORY = (
    "import time\nprint(flush=True)\nkept = []\n"
    "while True:\n  kept.append(bytearray(1 << 16))\n  time.sleep(0.01)"
)


def test_a_loop_has_no_sign_and_what_takes_memory_has_some() -> None:
    """The kernel's own counts tell both apart within a second."""
    found = {}
    for source in (LOOPS, TAKES_MEMORY):
        with subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            child.stdout.readline()
            before = work_counts({child.pid})
            time.sleep(1.0)
            found[source] = work_counts({child.pid}).differs(before)
            child.kill()
    assert {LOOPS: False, TAKES_MEMORY: True} == found


def test_the_processor_time_of_the_first_process_is_no_sign() -> None:
    """Only the others count: a thread that waits for a card uses a processor, too."""
    with subprocess.Popen([sys.executable, "-c", LOOPS]) as one:
        with subprocess.Popen([sys.executable, "-c", LOOPS]) as other:
            time.sleep(0.5)
            assert work_counts({one.pid}).others_s == 0.0
            assert work_counts({one.pid, other.pid}).others_s > 0.0
            other.kill()
        one.kill()


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[WorkCounts]:
    """What the next looks see; the last one stays."""
    counts: list[WorkCounts] = [WorkCounts(faults=0, others_s=0.0)]
    monkeypatch.setattr(
        stall_detector,
        "work_counts",
        lambda _pids: counts.pop(0) if len(counts) > 1 else counts[0],
    )
    return counts


def test_each_sign_gives_the_whole_time_again(looks: list[WorkCounts]) -> None:
    """A process that has ended takes its counts along: that is a sign, too."""
    looks[:] = [
        WorkCounts(faults=faults, others_s=others_s)
        for faults, others_s in ((0, 5.0), (9, 5.0), (40, 5.0), (40, 0.0), (41, 0.05))
    ]
    detector = StallDetector(lambda: {1}, limit_s=3.0)
    detector.begin(100.0)
    stalled = [second for second in range(1, 12) if detector.is_stalled(100.0 + second)]
    assert [7, 8, 9, 10, 11] == stalled


def test_each_order_has_the_time_of_its_own(looks: list[WorkCounts]) -> None:
    """Between two orders a candidate's process has nothing to do."""
    detector = StallDetector(lambda: {1}, limit_s=3.0)
    for began in (100.0, 200.0):
        detector.begin(began)
        seconds = [second for second in range(1, 6) if detector.is_stalled(began + second)]
        assert [4, 5] == seconds
    assert 1 == len(looks)


def test_a_machine_that_stood_still_is_no_stall(looks: list[WorkCounts]) -> None:
    """A paused machine stops the judge, too: nothing looked in between."""
    detector = StallDetector(set, 10.0)
    detector.begin(0.0)
    assert not any(detector.is_stalled(now) for now in (2.0, 4.0, 64.0, 66.0))
    assert detector.is_stalled(73.0)
