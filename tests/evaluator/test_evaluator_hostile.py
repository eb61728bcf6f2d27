"""Every candidate gets a verdict and leaves nothing behind, and the next one is judged.

The fixture `judged` checks after every test that no process and no folder is left, and that the
zygote is the same one; all tests here have one judge.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable

import pytest
from evaluator_samples import candidate, wrong_candidate

from actors.evaluator.judge import Judge
from actors.evaluator.reference import fixture
from actors.evaluator.sandbox import stall_detector
from actors.evaluator.timing import sides
from protocol.values import Outcome, Task, Verdict

Judged = Callable[[str], Verdict]
SEGFAULT = "import ctypes; ctypes.string_at(0)"
HOLD_GIL = "import re; re.match(r'(a+)+$', 'a' * 64 + 'b')"


@pytest.mark.parametrize(
    ("source", "outcome", "reason"),
    [
        (SEGFAULT, Outcome.CRASHED, "SIGSEGV"),
        (candidate(init=SEGFAULT), Outcome.CRASHED, "SIGSEGV"),
        (candidate(forward=SEGFAULT), Outcome.CRASHED, "SIGSEGV"),
        (candidate(forward="import os; os.abort()"), Outcome.CRASHED, "SIGABRT"),
        (candidate(forward="import os; os._exit(0)"), Outcome.CRASHED, "status 0"),
        ("import os; os._exit(3)", Outcome.CRASHED, "status 3"),
        (candidate(forward="import sys; sys.exit(1)"), Outcome.CRASHED, "SystemExit"),
        (candidate(forward="import os; os.kill(os.getpid(), 9)"), Outcome.CRASHED, "SIGKILL"),
    ],
)
def test_a_process_that_dies_is_a_crash(
    judged: Judged, source: str, outcome: Outcome, reason: str
) -> None:
    """Signals and exits of the candidate's process are `crashed`, and the reason names them."""
    verdict = judged(source)
    assert verdict.verdict is outcome
    assert reason in verdict.reason


def test_the_log_of_a_segfault_has_its_stack(judged: Judged) -> None:
    """The Python stack tells an agent which line to repair."""
    assert "candidate.py" in judged(candidate(forward=SEGFAULT)).log


@pytest.mark.parametrize(
    ("source", "stage"),
    [
        ("import time; time.sleep(1000)", "import"),
        (candidate(forward=HOLD_GIL), "check"),
        (candidate(before="import atexit, time\natexit.register(time.sleep, 1000)"), "time"),
        pytest.param(
            candidate(
                before="import threading, time\n"
                "threading.Thread(target=lambda: [time.sleep(1) for _ in range(10**6)]).start()"
            ),
            "time",
            marks=pytest.mark.long,  # as the one before
        ),
    ],
)
def test_endless_work_is_timed_out(judged: Judged, source: str, stage: str) -> None:
    """The verdict names the stage, also where the work holds the GIL or runs at the exit."""
    verdict = judged(source)
    assert (verdict.verdict, verdict.stage) == (Outcome.TIMED_OUT, stage)


NEVER_IDLE = """
frame = __import__("sys")._getframe()
while not hasattr(frame.f_locals.get("self"), "_synchronize"):
    frame = frame.f_back
frame.f_locals["self"]._synchronize = lambda: __import__("time").sleep(1000)
"""
# A first call that has another process work, and one that takes memory, for three seconds each.
COMPILES = """
import subprocess, sys
if not hasattr(self, "is_started"):
    code = "import time; until = time.time() + 3\\nwhile time.time() < until: pass"
    subprocess.run([sys.executable, "-c", code], check=True)
self.is_started = True
"""
TAKES_MEMORY = """
import time
if not hasattr(self, "taken"):
    self.taken, until = [], time.time() + 3
    while time.time() < until:
        self.taken.append(bytearray(1 << 20))
        time.sleep(0.02)
"""
STALLS = "no end in sight: for 0.5 s it took no new memory and no other process of it worked"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that prepares nothing has half a second; one that does, the limit of the check."""
    monkeypatch.setattr(fixture, "PLAIN_CALL_S", 0.5)
    monkeypatch.setattr(fixture, "PLAIN_CALL_TIMES", 0.0)
    monkeypatch.setattr(stall_detector, "LOOK_S", 0.1)


@pytest.mark.usefixtures("impatient")
def test_kernels_without_an_end_have_a_short_limit(judged: Judged) -> None:
    """What is left after forward's return is the device's work."""
    verdict = judged(candidate(forward=NEVER_IDLE))
    assert (verdict.verdict, verdict.stage) == (Outcome.TIMED_OUT, "check")
    assert "its kernels had not ended 0.5 s after forward returned" == verdict.reason


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("forward", [COMPILES, TAKES_MEMORY])
def test_a_slow_start_that_prepares_something_has_the_limit_of_the_check(
    patient_judge: Judge, task: Task, monkeypatch: pytest.MonkeyPatch, forward: str
) -> None:
    """A first call may compile, in its own process or in another one."""
    monkeypatch.setattr(fixture, "PLAIN_CALL_S", 1.5)  # a busy machine may hold a process up
    verdict = patient_judge.judge(task, candidate(forward=forward))
    assert isinstance(verdict, Verdict)
    assert Outcome.CORRECT is verdict.verdict, verdict.reason


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    "forward",
    [
        "while True: pass",
        "import time; time.sleep(1000)",
        HOLD_GIL,
        "while True: torch.relu(x)",
        "self.calls += 1\nif self.calls == 2: __import__('time').sleep(1000)",
    ],
)
def test_a_call_that_stalls_ends_long_before_the_limit_of_the_check(
    judged: Judged, forward: str
) -> None:
    """A loop or a wait without an end inside of forward prepares nothing, in any call."""
    verdict = judged(candidate(init="self.calls = 0", forward=forward))
    assert (verdict.verdict, verdict.stage) == (Outcome.TIMED_OUT, "check")
    assert STALLS in verdict.reason


STALLS_WHEN_TOLD = """
import signal, time
signal.signal(signal.SIGUSR1, lambda *_: time.sleep(1000))
"""


@pytest.mark.usefixtures("impatient")
def test_a_timed_call_that_stalls_says_that_it_was_warm(
    judged: Judged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the warm-up a block may take as long as a call that prepares nothing."""
    limit_orders = sides.Sides.limit_orders

    def tell_candidate(benchmarked: sides.Sides) -> None:
        limit_orders(benchmarked)
        for pid in benchmarked.frozen_pids("candidate"):
            os.kill(pid, signal.SIGUSR1)

    monkeypatch.setattr(sides.Sides, "limit_orders", tell_candidate)
    verdict = judged(candidate(before=STALLS_WHEN_TOLD))
    assert (verdict.verdict, verdict.stage) == (Outcome.TIMED_OUT, "time")
    assert "calls after the warm-up had not ended after 0.5 s" == verdict.reason


def test_a_fault_in_a_timed_call_is_found(judged: Judged) -> None:
    """A candidate that is right until it is timed is wrong."""
    late = "self.calls += 1\nif self.calls > 9: return x"
    verdict = judged(candidate(init="self.calls = 0", forward=late))
    assert (verdict.verdict, verdict.stage) == (Outcome.WRONG, "time")


def test_a_fork_bomb_is_bounded(judged: Judged) -> None:
    """Endless forking ends with a verdict and without a process left."""
    bomb = "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass"
    assert judged(bomb).verdict in (Outcome.TIMED_OUT, Outcome.CRASHED)


def test_a_daemon_ends_with_its_candidate(judged: Judged) -> None:
    """A grandchild in a session of its own does not outlive the verdict."""
    escape = (
        "import os, time\nif os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0:\n"
        "    time.sleep(1000)\n  os._exit(0)"
    )
    assert judged(wrong_candidate(escape)).verdict is Outcome.WRONG


def test_output_without_end_is_bounded(judged: Judged) -> None:
    """The judge stores a cleaned part of 256 MiB on stdout, and the candidate is judged."""
    flood = "for _ in range(256): os.write(1, b'\\x1b[31mx\\x07' + b'y' * (1 << 20))"
    verdict = judged(wrong_candidate(f"import os\n{flood}"))
    assert verdict.verdict is Outcome.WRONG, verdict
    assert len(verdict.log) < 1 << 17
    assert "\x1b" not in verdict.log
    assert "\x07" not in verdict.log


@pytest.mark.parametrize(
    "forward",
    [
        "import os; os.closerange(0, 256)",
        "import os; [os.write(n, b'\\xff' * 64) for n in range(3, 20) if is_socket(n)]",
        "import os; os.kill(os.getppid(), 9); os.kill(-1, 9); import time; time.sleep(0.5)",
    ],
)
def test_attacks_on_the_channel_and_on_processes_fail_the_candidate_only(
    judged: Judged, forward: str
) -> None:
    """Closed descriptors, bytes on the judge's socket, killed parents: a failure, never correct."""
    before = (
        "import os, stat\ndef is_socket(n):\n  try: return stat.S_ISSOCK(os.fstat(n).st_mode)\n"
        "  except OSError: return False"
    )
    verdict = judged(candidate(before=before, forward=forward))
    assert verdict.verdict in (Outcome.CRASHED, Outcome.TIMED_OUT)


IN_FLIGHT = """
import array, socket
pairs = []
try:
    for _ in range(400):
        one, other = socket.socketpair()
        ends = [one.fileno(), other.fileno()]
        ends += [pairs[-1][0].fileno(), pairs[-1][1].fileno()] if pairs else []
        for each in (one, other):
            each.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", ends))])
        pairs.append((one, other))
        if len(pairs) > 100:
            for each in pairs.pop(0):
                each.close()
except OSError:
    pass
"""


def test_descriptors_in_flight_keep_no_candidate_from_a_verdict(judged: Judged) -> None:
    """The kernel counts a user's, and refused those of the referee: "the reference failed"."""
    for before in (IN_FLIGHT, ""):
        assert judged(wrong_candidate(before)).verdict is Outcome.WRONG


def test_no_secret_reaches_a_candidate(judged: Judged, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment is an allow-list: a key of the judge is not in a candidate's."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    probe = "import os\nassert not any('secret' in v for v in os.environ.values()), 'leaked'"
    assert judged(wrong_candidate(probe)).verdict is Outcome.WRONG


def test_namespaces_hide_the_machine(judged: Judged) -> None:
    """With namespaces a candidate reaches no other process, no network and no file of ours."""
    if os.getuid():
        return  # without namespaces, level 1 refuses none of this
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        probe = f"""
import os, socket
assert len([p for p in os.listdir('/proc') if p.isdigit()]) < 10, 'sees processes'
try:
    socket.create_connection(('127.0.0.1', {port}), 1)
except OSError:
    pass
else:
    raise AssertionError('reaches the network')
try:
    open({os.path.realpath(__file__)!r}, 'a')
except OSError:
    pass
else:
    raise AssertionError('can write here')
"""
        verdict = judged(wrong_candidate(probe))
    assert verdict.verdict is Outcome.WRONG, verdict


def test_files_of_one_candidate_do_not_reach_the_next(judged: Judged) -> None:
    """Scratch, temporary files and shared memory are gone with the candidate."""
    where = (
        "import os, pathlib, tempfile\nplaces = [tempfile.gettempdir(), os.getcwd(), '/dev/shm']"
    )
    leave = f"{where}\nfor p in places: (pathlib.Path(p) / 'left-behind').write_text('x')"
    find = f"{where}\nassert not any((pathlib.Path(p) / 'left-behind').exists() for p in places)"
    for probe in (leave, find):
        assert judged(wrong_candidate(probe)).verdict is Outcome.WRONG


def test_the_next_candidate_is_judged_as_if_nothing_had_happened(judged: Judged) -> None:
    """After a crash and after work without end an honest candidate is correct."""
    for hostile in (SEGFAULT, "import time; time.sleep(1000)"):
        judged(candidate(forward=hostile))
    # Limits are short here: on a busy machine an honest candidate may reach them.
    assert any(judged(candidate()).is_correct for _try in range(3))
