"""Figures of a run as Prometheus text, where `--metrics HOST:PORT` is given.

The supervision loop publishes the figures that it reads anyway.  A thread serves the last text to
every client that can reach the address, and never touches the run.  The text holds nothing secret:
names of tasks and slots, counts, times.  A client library is not needed for the text format,
because nothing is counted here: all figures come from `run.db`.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from actors.cli import UsageError
from actors.supervisor.reporting.run_data.formatting import counts
from actors.supervisor.reporting.run_data.run_reader import RunReader
from actors.supervisor.reporting.run_data.snapshot import Snapshot, TaskState
from actors.supervisor.reporting.run_data.worker_status import WorkerStatus
from actors.supervisor.reporting.screens.screen import Screen
from protocol.values import Role, Value

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LEASE_COUNT_S = 5.0  # between two counts of the leases: a long run has many
MetricLabels = tuple[tuple[str, str], ...]
READ_TIMEOUT_S = 10.0  # after this silence of a client its connection is closed


class MetricSample(Value, frozen=True, kw_only=True):
    """One line of the text: labels and a figure."""

    labels: MetricLabels = ()
    value: float


class MetricFamily(Value, frozen=True, kw_only=True):
    """One metric with all its samples."""

    name: str
    kind: str  # counter, gauge
    help: str
    samples: tuple[MetricSample, ...]

    def text(self) -> str:
        """Return the family in the text format; nothing for a family without samples."""
        if not self.samples:
            return ""
        lines = [f"# HELP {self.name} {self.help}", f"# TYPE {self.name} {self.kind}"]
        for sample in self.samples:
            pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in sample.labels)
            lines.append(f"{self.name}{{{pairs}}} {sample.value!r}" if pairs else
                         f"{self.name} {sample.value!r}")  # fmt: skip
        return "\n".join(lines) + "\n"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def prometheus_text(
    snapshot: Snapshot, workers: tuple[WorkerStatus, ...], leases: Mapping[str, int]
) -> str:
    """Return a run's figures as text; figures that were not measured are left out."""
    families = [
        *_run(snapshot, leases),
        *_attempts(snapshot.tasks),
        *_calls(snapshot.tasks),
        *_workers(workers),
    ]
    return "".join(family.text() for family in families)


def _run(snapshot: Snapshot, leases: Mapping[str, int]) -> list[MetricFamily]:
    machines = [worker for worker in snapshot.workers if worker.role == Role.SUPERVISOR]
    status = (("run", snapshot.run_id), ("status", snapshot.status or "starting"))
    outcomes = [(("outcome", outcome),) for outcome in leases]
    return [
        _gauge("stark_run_info", "What the run is doing.", [(status, 1.0)]),
        _counter(
            "stark_run_seconds_total",
            "Seconds that any coordinator served the run.",
            [((), snapshot.seconds)],
        ),
        _counter(
            "stark_leases_total",
            "Leases granted, by how they ended.",
            zip(outcomes, map(float, leases.values()), strict=True),
        ),
        _gauge(
            "stark_supervisor_round_trip_seconds",
            "From a supervisor's heartbeat to the coordinator's answer.",
            [
                ((("slot", one.slot),), one.rtt_ms / 1000)
                for one in machines
                if one.rtt_ms is not None
            ],
        ),
    ]


def _attempts(tasks: tuple[TaskState, ...]) -> list[MetricFamily]:
    named = _by_task(tasks)
    return [
        _gauge(
            "stark_task_budget",
            "Attempts that the task may have.",
            [(label, float(task.budget)) for label, task in named],
        ),
        _counter(
            "stark_attempts_total",
            "Recorded attempts, by verdict.",
            [
                ((*label, ("verdict", outcome)), float(count))
                for label, task in named
                for outcome, count in counts(task).items()
            ],
        ),
        _gauge(
            "stark_attempts_under_way",
            "Attempts without a verdict yet.",
            [(label, float(len(task.under_way))) for label, task in named],
        ),
        _gauge(
            "stark_best_speedup",
            "Of the best candidate that is faster than eager PyTorch.",
            [
                (label, task.best.verdict.speedup)
                for label, task in named
                if task.best is not None and task.best.verdict.speedup is not None
            ],
        ),
        _gauge(
            "stark_best_confirmed",
            "Whether the best was measured again at length; 0: a first look.",
            [(label, float(task.best.confirmed)) for label, task in named if task.best is not None],
        ),
    ]


def _calls(tasks: tuple[TaskState, ...]) -> list[MetricFamily]:
    named = _by_task(tasks)
    tokens = [
        ((*label, ("kind", kind)), float(getattr(task.spend, f"{kind}_tokens")))
        for label, task in named
        for kind in ("input", "cached", "output")
    ]
    return [
        _counter(
            "stark_calls_total",
            "Replies that models gave.",
            [(label, float(task.spend.calls)) for label, task in named],
        ),
        _counter("stark_tokens_total", "Tokens of these calls.", tokens),
        _counter(
            "stark_spend_usd_total",
            "US dollars; absent while a call has no known price.",
            [(label, task.spend.usd) for label, task in named if task.spend.usd is not None],
        ),
    ]


def _by_task(tasks: tuple[TaskState, ...]) -> list[tuple[MetricLabels, TaskState]]:
    return [((("task", task.name),), task) for task in tasks]


def _workers(workers: tuple[WorkerStatus, ...]) -> list[MetricFamily]:
    named = [((("slot", worker.slot),), worker) for worker in workers]
    return [
        _gauge(
            "stark_actor_up",
            "Whether a process runs in the slot.",
            [(label, float(worker.state == "up")) for label, worker in named],
        ),
        _gauge(
            "stark_actor_leases",
            "Leases that it holds.",
            [(label, float(worker.leases)) for label, worker in named],
        ),
        _counter(
            "stark_actor_restarts_total",
            "How often it was started again.",
            [(label, float(worker.restarts)) for label, worker in named],
        ),
        _gauge(
            "stark_actor_last_cause_info",
            "How the process before this one ended.",
            [((*label, ("cause", worker.cause)), 1.0) for label, worker in named if worker.cause],
        ),
        _gauge(
            "stark_actor_quarantined",
            "Whether nothing is judged on its device until the device passes its check.",
            [(label, float(worker.is_quarantined)) for label, worker in named],
        ),
        _gauge(
            "stark_actor_round_trip_seconds",
            "From a heartbeat to the coordinator's answer, a commit included.",
            [(label, worker.rtt_ms / 1000) for label, worker in named if worker.rtt_ms is not None],
        ),
    ]


def _gauge(name: str, help_text: str, found: Iterable[tuple[MetricLabels, float]]) -> MetricFamily:
    samples = tuple(MetricSample(labels=labels, value=value) for labels, value in found)
    return MetricFamily(name=name, kind="gauge", help=help_text, samples=samples)


def _counter(
    name: str, help_text: str, found: Iterable[tuple[MetricLabels, float]]
) -> MetricFamily:
    samples = tuple(MetricSample(labels=labels, value=value) for labels, value in found)
    return MetricFamily(name=name, kind="counter", help=help_text, samples=samples)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    text = ""


class _Server6(_Server):
    address_family = socket.AF_INET6


class _MetricsHandler(BaseHTTPRequestHandler):
    """One request: the text at /metrics, an error for every other path."""

    timeout = READ_TIMEOUT_S
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        """Answer with the text that was published last."""
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(HTTPStatus.NOT_FOUND, "see /metrics")
            return
        body = self.server.text.encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # the base's name
        """Log nothing: stderr is the user's."""


class MetricsServer:
    """Serves the text that was published last at /metrics."""

    def __init__(self, address: str) -> None:
        """Listen on HOST:PORT; raise UsageError with one line when that can't be done."""
        host, colon, port = address.rpartition(":")
        if not (colon and host and port.isdecimal() and int(port) < 65536):
            raise UsageError(
                f"--metrics: expected HOST:PORT, such as 127.0.0.1:9464, got {address!r}"
            )
        try:
            server_type = _Server6 if host.startswith("[") else _Server
            self._server = server_type((host.strip("[]"), int(port)), _MetricsHandler)
        except OSError as error:
            raise UsageError(f"--metrics: can't listen on {address}: {error.strerror}") from error
        except UnicodeError as error:  # too long or too short for a host's name
            raise UsageError(f"--metrics: {host!r} is not a host: {error}") from error
        self.url = f"http://{host}:{self._server.server_address[1]}/metrics"
        threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()

    def publish(self, text: str) -> None:
        """Serve `text` from now on."""
        self._server.text = text

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()


class MeteredScreen:
    """A screen that also publishes what it shows."""

    def __init__(self, screen: Screen, server: MetricsServer, reader: RunReader) -> None:
        self._screen = screen
        self._server = server
        self._reader = reader
        self._leases: dict[str, int] = {}
        self._next_count = 0.0

    def say(self, line: str) -> None:
        self._screen.say(line)

    def show(self, snapshot: Snapshot, workers: tuple[WorkerStatus, ...], elapsed_s: float) -> None:
        if elapsed_s >= self._next_count:
            self._next_count = elapsed_s + LEASE_COUNT_S
            self._leases = self._reader.lease_counts()
        self._server.publish(prometheus_text(snapshot, workers, self._leases))
        self._screen.show(snapshot, workers, elapsed_s)

    def close(self) -> None:
        self._screen.close()
