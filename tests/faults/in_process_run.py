"""A run of the real coordinator in this process: fake workers answer in memory, crashes cost ms.

A crash is an exception at a failpoint: everything in memory is dropped and nothing more is
committed, as after kill -9.  The next coordinator begins from the folder.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable, Container
from contextlib import closing
from pathlib import Path

import zmq
from fake_worker import FakeWorker
from msgspec.structs import replace

from actors import failpoints
from actors.coordinator.__main__ import read_tasks
from actors.coordinator.coordinator import Coordinator, RunStart
from actors.coordinator.storage.database import Database
from protocol import codec, messages
from protocol import settings as settings_file
from protocol.directives import Directive, DirectiveArguments, new_directive, submit_directive
from protocol.settings import SearchSettings, Settings
from protocol.values import WORKER_ROLES, Call, Role
from scripts import replay

MAX_ROUNDS = 4000


class InstantContext:
    """The context of work that is done at once."""

    def set_activity(self, text: str) -> None:
        pass

    def candidate_running(self) -> None:
        pass

    def call_completed(self, call: Call) -> None:
        pass

    def reserve_budget(self, model: str, request: str, usd: float | None) -> bool:
        return False  # no call is made

    def call_lost(self, partial: Call | None = None) -> None:
        pass

    def is_revoked(self) -> bool:
        return False


class FakeSocket:
    """A ROUTER whose peers are fake workers: each piece of work is answered in the next round."""

    def __init__(self, silent_roles: Container[Role], *, defers_baselines: bool) -> None:
        self.sent: list[messages.Message] = []
        self.unanswered: tuple[type[messages.Message], ...] = ()  # work that is never done
        self._defers_baselines = defers_baselines
        self._silent_roles = silent_roles
        self._encode = codec.worker_codec().encode
        self._decode = codec.worker_codec().decode
        self._incoming: deque[list[bytes]] = deque()
        self._outgoing: list[bytes] = []

    def hello(self, role: Role, incarnation: str) -> None:
        hello = messages.Hello(
            role=role, slot=f"{role}-0", incarnation=incarnation, pid=1, credit=8
        )
        self.deliver(incarnation, hello)

    def deliver(self, sender: str, message: messages.Message) -> None:
        self._incoming.append([sender.encode(), *self._encode(message)])

    def poll(self, _timeout: int) -> int:
        return len(self._incoming)

    def recv_multipart(self, _flags: int, **_options: object) -> list[bytes]:
        if not self._incoming:
            raise zmq.Again
        return self._incoming.popleft()

    def send(self, frame: bytes, _flags: int) -> None:
        self._outgoing.append(frame)
        if len(self._outgoing) < 3:
            return
        address, *frames = self._outgoing
        self._outgoing = []
        message = self._decode(frames)
        self.sent.append(message)
        if isinstance(message, messages.Work):
            role = Role(address.decode().partition("+")[0])
            if role in self._silent_roles or isinstance(message, self.unanswered):
                return
            answer = FakeWorker(role, 0.0).work(message, InstantContext())
            if isinstance(answer, messages.ReferenceMeasured) and self._defers_baselines:
                reference = replace(answer.reference, baselines_pending=True)
                answer = replace(answer, reference=reference)
            if isinstance(message, messages.Evaluate) and message.rounds > 1:
                answer = slower(answer)
            self.deliver(address.decode(), answer)


def slower(judged: messages.Result) -> messages.Result:
    """Return a second look: a correct candidate is a tenth slower than at first."""
    if not isinstance(judged, messages.Evaluated) or not judged.verdict.speedup:
        return judged
    speedup = judged.verdict.speedup * 0.9
    verdict = replace(judged.verdict, speedup=speedup, speedup_ci95=(speedup, speedup))
    return replace(judged, verdict=verdict)


class InProcessRun:
    """One run folder, and the coordinator that serves it at present."""

    def __init__(
        self, run_dir: Path, *, tasks: tuple[str, ...] = ("t",), budget: int = 8, **options: object
    ) -> None:
        self.run_dir = run_dir
        (run_dir / "tasks").mkdir(parents=True)
        for task in tasks:
            (run_dir / "tasks" / f"{task}.py").write_text("# the reference\n")
        search = SearchSettings(budget=budget, in_flight=int(str(options.pop("in_flight", 1))))
        self.settings = Settings(tasks=tasks, search=search, lease_s=3600.0, **options)
        settings_file.write(run_dir, self.settings)
        self.status: str | None = None
        self.starts = 0
        self.silent_roles: set[Role] = set()  # they hold their leases and answer nothing
        self.start()

    def start(self, supervisor: str = "", named: tuple[str, ...] = ()) -> None:
        """Start a coordinator, with new workers."""
        self.settings = settings_file.read(self.run_dir)
        self.socket = FakeSocket(
            self.silent_roles, defers_baselines=self.settings.rules.baselines == "all"
        )
        self.database = Database(self.run_dir)
        self.coordinator = Coordinator(
            RunStart(
                run_dir=self.run_dir,
                settings=self.settings,
                tasks=read_tasks(self.run_dir, self.settings),
                supervisor=supervisor,
                named=named,
            ),
            database=self.database,
            socket=self.socket,
            log=_SilentLog(),
        )
        self.starts += 1
        self.status = None
        for role in WORKER_ROLES:
            self.socket.hello(role, f"{role}+{self.starts}")

    def crash(self) -> None:
        """Drop the coordinator as kill -9 does."""
        self.database.close()

    def round(self) -> None:
        """Do one round; a failpoint that raises is a crash, and the next coordinator starts."""
        try:
            self.status = self.coordinator.round()
        except failpoints.FailpointError:
            self.crash()
            self.start()

    def until(self, is_done: Callable[[], bool]) -> None:
        for _ in range(MAX_ROUNDS):
            if is_done():
                return
            self.round()
        raise TimeoutError

    def run_to(self, nodes: int) -> None:
        """Go on until so many attempts are recorded."""
        self.until(lambda: self.attempts_done() >= nodes)

    def run_out(self) -> None:
        """Go on until the run is over."""
        self.until(lambda: self.status is not None)

    def rounds(self, count: int = 5) -> None:
        for _ in range(count):
            self.round()

    def close(self) -> None:
        self.database.close()

    # --- directives --------------------------------------------------------------------------

    def submit(
        self, verb: str, node: int | None = None, *, task: str = "", key: str = "", **arguments
    ) -> str:
        """Submit a directive; return its key."""
        directive: Directive = new_directive(
            verb, task=task, node=node, arguments=DirectiveArguments(**arguments), by="eva", key=key
        )
        return submit_directive(self.run_dir, directive)

    def steer(self, verb: str, node: int | None = None, **more) -> tuple[str, str]:
        """Submit a directive, do one round, and return its state and reason."""
        key = self.submit(verb, node, **more)
        self.round()
        return self.state(key)

    def state(self, key: str) -> tuple[str, str]:
        rows = self.rows("SELECT state, reason FROM directive WHERE key = ?", key)
        return rows[0] if rows else ("wanted", "")

    # --- the records -------------------------------------------------------------------------

    def rows(self, query: str, *values: object) -> list[tuple]:
        uri = f"file:{self.run_dir / 'run.db'}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True)) as database:
            return database.execute(query, values).fetchall()

    def differences(self) -> list[str]:
        """Return what scripts/replay.py finds, but for requests: fake workers ask nothing."""
        return list(replay.compare(self.run_dir))

    def attempts_done(self) -> int:
        """Return the number of recorded attempts, of all tasks."""
        return self.rows("SELECT COUNT(*) FROM node WHERE number > 0")[0][0]

    def leases(self) -> int:
        """Return the number of leases that were ever granted."""
        return self.rows("SELECT COUNT(*) FROM lease")[0][0]

    def parents(self) -> dict[int, int]:
        return dict(self.rows("SELECT number, parent FROM attempt ORDER BY number"))

    def nodes(self) -> list[tuple]:
        return self.rows("SELECT number, parent, source, advice, word FROM node ORDER BY number")


class _SilentLog:
    """A log without a file."""

    def info(self, *_args: object, **_fields: object) -> None:
        pass

    warning = error = info


MakeRun = Callable[..., InProcessRun]
