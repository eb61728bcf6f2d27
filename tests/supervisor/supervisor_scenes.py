"""Scenes that need a process of their own: they adopt orphans, reap children, own signals.

`python supervisor_scenes.py NAME FOLDER` runs one and prints its observations as JSON.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from supervisor_sample import Sample

from actors import deadlines, procfs
from actors.coordinator.storage.database import schema
from actors.log import open_log
from actors.supervisor import coordinator_client, hang_detector, run_loop
from actors.supervisor.coordinator_client import CoordinatorClient
from actors.supervisor.process_loop import ProcessLoop
from actors.supervisor.processes import child_process, orphans
from actors.supervisor.processes.child_specs import ChildSpec
from actors.supervisor.processes.event_poller import EventPoller
from actors.supervisor.processes.process_tree import ProcessTree
from actors.supervisor.processes.restarts import RestartIntensity
from actors.supervisor.reporting.run_data.run_reader import RunReader
from actors.supervisor.reporting.screens.screen import PlainScreen
from actors.supervisor.run_folder import RunFolder
from protocol.run_db import RUN_DB
from protocol.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
SLEEP = "import time; time.sleep(600)"
# A grandchild in a session of its own that ignores signals; its pid goes into a file.
ESCAPE = """
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if os.fork() == 0:
        open(sys.argv[1] + '.new', 'w').write(str(os.getpid()))
        os.rename(sys.argv[1] + '.new', sys.argv[1])
    time.sleep(600)
time.sleep(600)
"""
# This program dies five times while a candidate runs, according to run.db, and then lives.
CANDIDATES = """
import sqlite3, sys, time

run = sqlite3.connect('run.db', isolation_level=None)
(number,) = run.execute('SELECT COUNT(*) FROM lease').fetchone()
if number == 5:
    open('enough', 'w').close()
    time.sleep(600)
run.execute('INSERT INTO lease VALUES (?, ?, ?, ?, 0, NULL, NULL, 1)',
            (number + 1, 't/1/evaluate', 'evaluator-0', sys.argv[-1]))
sys.exit(1)
"""
LIFELINE = "import sys; sys.stdin.read(); open(sys.argv[1], 'w').write('let go')"
# This coordinator answers a supervisor: sends Welcome, records losses, ends on Drain.
COORDINATOR = """
import os, sys, zmq
from protocol import codec, messages, transport

socket = transport.listen(zmq.Context(), 'ipc://coordinator.sock')
words = codec.coordinator_codec()
while True:
    sender, *frames = socket.recv_multipart()
    match words.decode(frames):
        case messages.Hello():
            welcome = messages.Welcome(epoch=1, beat_s=0.2, lease_s=1.0)
            socket.send_multipart([sender, *words.encode(welcome)])
        case messages.Heartbeat(sent_at=sent):
            names = tuple(open('silent').read().split()) if os.path.exists('silent') else ()
            heard = messages.HeartbeatAck(sent_at=sent, silent_incarnations=names)
            socket.send_multipart([sender, *words.encode(heard)])
            open('heard', 'w').close()
        case messages.WorkerLost(slot=slot, exit_description=how):
            with open('losses', 'a') as file:
                file.write(f'{slot}: {how}\\n')
        case messages.Drain():
            sys.exit(0)
"""


# The first coordinator hangs at its first heartbeat; the next one does not.
HANGS_ONCE = COORDINATOR.replace(
    "case messages.Heartbeat(",
    "case messages.Heartbeat() if not os.path.exists('hung'):\n"
    "            open('hung', 'w').close()\n"
    "            time.sleep(600)\n"
    "        case messages.Heartbeat(",
).replace("import os, sys, zmq", "import os, sys, time, zmq")


def spec(name: str, *argv: str, limit: int = 50, role: str = "evaluator") -> ChildSpec:
    """Return the spec of a slot in which a small Python program runs."""
    return ChildSpec(
        name=name,
        role=role,
        argv=(sys.executable, "-c", *argv),
        environment={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "STARK_RUN": "scene"},
        restart="transient" if role == "coordinator" else "permanent",
        intensity=RestartIntensity(limit=limit, period_s=60.0),
    )


def until(condition: Callable[[], object], limit_s: float = 20.0) -> bool:
    """Wait for a condition; return False if it does not become true in time."""
    give_up = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > give_up:
            return False
        time.sleep(0.01)
    return True


def alive(pid: int) -> bool:
    return procfs.parent_of(pid) is not None and not procfs.is_zombie(pid)


def tree_dies(folder: Path) -> dict[str, object]:
    """Kill a child whose grandchild escaped with setsid and ignores signals."""
    child_process.become_subreaper()
    note = folder / "pid"
    child = child_process.start_child(spec("evaluator-0", ESCAPE, str(note)), folder)
    started = until(note.exists)
    escaped = int(note.read_text())
    child_process.kill_child(child)
    status, how = child_process.reap(child)
    swept = child_process.reap_orphans(())
    return {
        "started": started,
        "status": status,
        "how": how,
        "swept": swept,
        "alive": alive(escaped),
        "children": len(procfs.children_of(os.getpid())),
    }


def lifeline(folder: Path) -> dict[str, object]:
    """End silently, as a killed supervisor does: the child's standard input ends."""
    note = folder / "note"
    child_process.start_child(spec("coder-0", LIFELINE, str(note)), folder)
    if os.fork() == 0:
        os._exit(0)  # a forked process must not keep the lifeline open
    os.wait()
    return {"note": str(note)}


def leftover_processes(folder: Path) -> dict[str, object]:
    """Find processes of another supervisor by the mark in their environment, and end them."""
    note = folder / "pid"
    child = child_process.start_child(spec("evaluator-0", ESCAPE, str(note)), folder)
    until(note.exists)
    threading.Thread(target=child.process.wait, daemon=True).start()
    found = orphans.kill_orphans("scene")
    return {
        "found": found,
        "left": len(orphans.find_orphans("scene")),
        "other": len(orphans.find_orphans("x")),
    }


def _supervise(folder: Path, *specs: ChildSpec, minutes: float | None = None) -> dict[str, object]:
    os.chdir(folder)
    (folder / "logs").mkdir(exist_ok=True)
    child_process.become_subreaper()
    poller = EventPoller()
    processes = ProcessTree(specs, folder, random.Random(1), on_start=poller.add_child)
    coordinator = CoordinatorClient("ipc://coordinator.sock")
    printed = Path("printed").open("w")  # noqa: SIM115  # as long as the process
    screen = PlainScreen(printed)
    settings = Settings(max_minutes=minutes)
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT)
    loop = run_loop.RunLoop(
        folder=RunFolder(folder, shown="run", run_id="scene", lock=lock, created=[]),
        settings=settings,
        process_loop=ProcessLoop(
            processes=processes,
            poller=poller,
            coordinator=coordinator,
            say=screen.say,
            log=open_log(folder, "supervisor"),
            lease_s=settings.lease_s,
        ),
        reader=RunReader(folder),
        screen=screen,
    )
    ending = loop.serve()
    coordinator.close()
    return {
        "kind": str(ending.kind),
        "why": ending.reason,
        "starts": {name: slot.starts for name, slot in processes.slots.items()},
        "left": len(procfs.children_of(os.getpid())),
        "printed": Path("printed").read_text(),
    }


def too_often(folder: Path) -> dict[str, object]:
    """A child that dies at every start ends the run; the reason has its last output."""
    return _supervise(
        folder,
        spec("coordinator", SLEEP, role="coordinator"),
        spec("coder-0", "raise SystemExit('no such prompt')", limit=2),
    )


def candidates_doing(folder: Path) -> dict[str, object]:
    """An evaluator dies more often than its intensity allows, each time with a candidate."""
    with closing(sqlite3.connect(folder / "run.db")) as run:
        run.executescript(schema())

    def disturb() -> None:
        until(lambda: (folder / "enough").exists())
        os.kill(os.getpid(), signal.SIGINT)

    deadlines.RUN_DRAIN_S = 0.5
    threading.Thread(target=disturb, daemon=True).start()
    return _supervise(
        folder,
        spec("coordinator", SLEEP, role="coordinator"),
        _fenced(spec("evaluator-0", CANDIDATES, limit=2)),
    )


def coordinator_ends(folder: Path) -> dict[str, object]:
    """The coordinator's exit status 0 ends everything, also a child that ignores SIGTERM."""
    ignores_sigterm = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
    deadlines.TERMINATE_S = 0.5
    return _supervise(
        folder,
        spec("coordinator", "import time; time.sleep(0.5)", role="coordinator"),
        spec("evaluator-0", ignores_sigterm),
    )


def coordinator_returns(folder: Path) -> dict[str, object]:
    """A loss while the coordinator is dead reaches the next one; a drain then ends the run."""

    def disturb() -> None:
        if not until(lambda: (folder / "coordinator.sock").exists()):
            os._exit(1)
        coordinator = _pid_of("coordinator")
        os.kill(coordinator, signal.SIGSTOP)  # from here on it reads nothing
        os.kill(_pid_of("evaluator-0"), signal.SIGKILL)
        time.sleep(0.3)
        os.kill(coordinator, signal.SIGKILL)
        until(lambda: (folder / "losses").exists())
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=disturb, daemon=True).start()
    fenced = _fenced(spec("evaluator-0", SLEEP))
    seen = _supervise(folder, spec("coordinator", COORDINATOR, role="coordinator"), fenced)
    return seen | {"losses": (folder / "losses").read_text()}


def coordinator_hangs(folder: Path) -> dict[str, object]:
    """A coordinator that lives and does not answer is replaced; the next one answers."""
    coordinator_client.MIN_UNRESPONSIVE_S = 0.5

    def disturb() -> None:
        until((folder / "heard").exists)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=disturb, daemon=True).start()
    return _supervise(folder, spec("coordinator", HANGS_ONCE, role="coordinator"))


def silent_worker(folder: Path) -> dict[str, object]:
    """A worker that the coordinator does not hear any more is killed once and restarted."""

    def disturb() -> None:
        until((folder / "incarnation").exists)
        (folder / "incarnation").rename(folder / "silent")
        until(lambda: (folder / "losses").exists())
        until((folder / "incarnation").exists)
        os.kill(os.getpid(), signal.SIGINT)

    program = "import os, sys, time; print(sys.argv[-1], file=open('new', 'w'), flush=True)\n"
    program += "os.rename('new', 'incarnation'); time.sleep(600)"
    threading.Thread(target=disturb, daemon=True).start()
    seen = _supervise(
        folder,
        spec("coordinator", COORDINATOR, role="coordinator"),
        _fenced(spec("evaluator-0", program)),
    )
    return seen | {"losses": (folder / "losses").read_text()}


def stopped_worker(folder: Path) -> dict[str, object]:
    """A worker that was stopped before its first message is killed and restarted."""
    hang_detector.STOPPED_LEASES = 0.01

    def disturb() -> None:
        until(lambda: (folder / "losses").exists())
        os.kill(os.getpid(), signal.SIGINT)

    program = "import os, time; first = not os.path.exists('s'); open('s', 'w')\n"
    program += "if first: os.kill(os.getpid(), 19)\ntime.sleep(600)"
    threading.Thread(target=disturb, daemon=True).start()
    return _supervise(
        folder,
        spec("coordinator", COORDINATOR, role="coordinator"),
        _fenced(spec("evaluator-0", program)),
    )


def two_interrupts(folder: Path) -> dict[str, object]:
    """A coordinator that does not drain: the second signal ends all at once."""

    def disturb() -> None:
        until(lambda: len(procfs.children_of(os.getpid())) == 2)
        os.kill(os.getpid(), signal.SIGTERM)
        until(lambda: "SIGTERM" in (folder / "printed").read_text())
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=disturb, daemon=True).start()
    return _supervise(
        folder, spec("coordinator", SLEEP, role="coordinator"), spec("evaluator-0", SLEEP)
    )


def time_is_up(folder: Path) -> dict[str, object]:
    """--max-minutes drains; a coordinator that hangs is ended when the drain's time is over."""
    deadlines.RUN_DRAIN_S = 0.5
    return _supervise(
        folder,
        spec("coordinator", SLEEP, role="coordinator"),
        spec("evaluator-0", SLEEP),
        minutes=0.01,
    )


def folder_moved(folder: Path) -> dict[str, object]:
    """The folder of a run under way gets another name; all processes still have it open."""

    def disturb() -> None:
        until(lambda: (folder / "heard").exists())
        folder.rename(folder.with_name("elsewhere"))

    threading.Thread(target=disturb, daemon=True).start()
    seen = _supervise(
        folder,
        spec("coordinator", COORDINATOR, role="coordinator"),
        spec("evaluator-0", SLEEP),
    )
    return {**seen, "made_again": folder.exists()}


def store_removed(folder: Path) -> dict[str, object]:
    """`run.db` of a run under way is removed; the coordinator still has it open."""
    Sample(folder, nodes=(), status="running").db.close()

    def disturb() -> None:
        until(lambda: (folder / "heard").exists())
        until(lambda: os.pread(lock, 100, 0).split()[1:])  # the supervisor has read run.db
        (folder / RUN_DB).unlink()

    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT)
    threading.Thread(target=disturb, daemon=True).start()
    seen = _supervise(folder, spec("coordinator", COORDINATOR, role="coordinator"))
    return {**seen, "made_again": (folder / RUN_DB).exists()}


def _fenced(plain: ChildSpec) -> ChildSpec:
    from msgspec.structs import replace

    return replace(plain, fenced=True)


def _pid_of(slot: str) -> int:
    """Return the pid of a child, which holds its output file open."""
    for pid in procfs.children_of(os.getpid()):
        try:
            if Path(f"/proc/{pid}/fd/1").readlink().name == f"{slot}.out":
                return pid
        except OSError:
            continue
    raise LookupError(slot)  # never 0, which would mean the whole process group


SCENES = (
    tree_dies,
    lifeline,
    leftover_processes,
    too_often,
    candidates_doing,
    coordinator_ends,
    coordinator_returns,
    coordinator_hangs,
    silent_worker,
    stopped_worker,
    two_interrupts,
    time_is_up,
    folder_moved,
    store_removed,
)

if __name__ == "__main__":
    scene = {scene.__name__: scene for scene in SCENES}[sys.argv[1]]
    where = Path(sys.argv[2])
    (where / "logs").mkdir(exist_ok=True)
    sys.stdout.write(json.dumps(scene(where)))
