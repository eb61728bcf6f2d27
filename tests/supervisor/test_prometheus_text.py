"""The figures for a monitoring system: valid text, true figures, one line for a mistake."""

from __future__ import annotations

import re
import socket
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from supervisor_sample import Sample

from actors.cli import UsageError
from actors.supervisor.reporting.run_data.run_reader import RunReader
from actors.supervisor.reporting.run_data.snapshot import Snapshot
from actors.supervisor.reporting.run_data.worker_status import WorkerStatus
from actors.supervisor.reporting.screens.prometheus import (
    MeteredScreen,
    MetricFamily,
    MetricsServer,
    prometheus_text,
)
from actors.supervisor.reporting.screens.prometheus import MetricSample as Point

# The text format: https://prometheus.io/docs/instrumenting/exposition_formats/
VALUE = r'"((?:[^"\\\n]|\\[\\"n])*)"'
LABEL = rf"[a-zA-Z_][a-zA-Z0-9_]*={VALUE}"
LINE = re.compile(rf"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{{({LABEL}(?:,{LABEL})*)\}})? (\S+)")


def read(text: str) -> dict[str, float]:
    """Read the text format strictly; return `name{labels}` -> figure."""
    found: dict[str, float] = {}
    kinds: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in kinds
            assert kind in ("counter", "gauge")
            assert (kind == "counter") == name.endswith("_total")
            kinds[name] = kind
        elif not line.startswith("# HELP "):
            match = LINE.fullmatch(line)
            assert match, line
            assert match[1] == list(kinds)[-1], "a family's lines must be together"
            key = line.rpartition(" ")[0]
            assert key not in found
            found[key] = float(line.rpartition(" ")[2])
    return found


WORKERS = (
    WorkerStatus(slot="evaluator-0", state="up", pid=7, restarts=2, activity="", seconds=None,
           cause="signal 9 (SIGKILL)", leases=3, rtt_ms=1.5),
    WorkerStatus(slot="evaluator-0@b", state="silent", pid=None, restarts=0, activity="",
    seconds=None,
           is_quarantined=True),
)  # fmt: skip


def test_a_runs_figures_are_those_of_its_database(tmp_path: Path) -> None:
    """Attempts by verdict, the best, spend, leases; an unknown figure is absent, not 0."""
    sample = Sample(tmp_path, budget=30, status="running")
    sample.add_call("gelu/1/plan", 0.25, tokens=100)
    sample.db.execute(
        "INSERT INTO lease (epoch, work, slot, incarnation, granted, outcome, running)"
        " VALUES (1, 'gelu/1/plan', 'p', 'x', 1.0, 'done', 0), (2, 'w', 'p', 'x', 1.0, NULL, 0)"
    )
    reader = RunReader(tmp_path)
    snapshot = reader.poll()
    assert snapshot is not None
    figures = read(prometheus_text(snapshot, WORKERS, reader.lease_counts()))
    reader.close()

    expected = {
        'stark_run_info{run="abc",status="running"}': 1.0,
        'stark_attempts_total{task="gelu",verdict="correct"}': 3.0,
        'stark_best_speedup{task="gelu"}': 2.5,
        'stark_spend_usd_total{task="gelu"}': 0.25,
        'stark_tokens_total{task="gelu",kind="input"}': 100.0,
        'stark_leases_total{outcome="done"}': 1.0,
        'stark_leases_total{outcome="held"}': 1.0,
        'stark_actor_up{slot="evaluator-0"}': 1.0,
        'stark_actor_up{slot="evaluator-0@b"}': 0.0,
        'stark_actor_leases{slot="evaluator-0"}': 3.0,
        'stark_actor_restarts_total{slot="evaluator-0"}': 2.0,
        'stark_actor_last_cause_info{slot="evaluator-0",cause="signal 9 (SIGKILL)"}': 1.0,
        'stark_actor_quarantined{slot="evaluator-0@b"}': 1.0,
        'stark_actor_round_trip_seconds{slot="evaluator-0"}': 0.0015,
    }
    assert expected.items() <= figures.items()
    assert 'stark_actor_round_trip_seconds{slot="evaluator-0@b"}' not in figures


@given(st.text(max_size=20), st.floats(allow_nan=False))
def test_any_label_and_figure_can_be_read_back(value: str, figure: float) -> None:
    """Quotes, backslashes and line ends in a task's name break nothing."""
    points = (Point(labels=(("task", value),), value=figure),)
    text = MetricFamily(name="x", kind="gauge", help="h", samples=points).text()
    line = text.split("\n", 2)[2].removesuffix("\n")
    match = re.fullmatch(rf"x\{{task={VALUE}\}} (\S+)", line)
    assert match
    escapes = {r"\\": "\\", r"\"": '"', r"\n": "\n"}
    assert value == re.sub(r"\\.", lambda found: escapes[found[0]], match[1])
    assert figure == float(match[2])


def get(url: str) -> tuple[int, str, str]:
    """Return status, content type and body."""
    parts = urlsplit(url)
    connection = HTTPConnection(parts.netloc, timeout=10)
    connection.request("GET", parts.path)
    answer = connection.getresponse()
    found = answer.status, answer.headers["Content-Type"], answer.read().decode()
    connection.close()
    return found


class NoScreen:
    """A screen that shows nothing."""

    def say(self, line: str) -> None: ...
    def show(
        self, snapshot: Snapshot, workers: tuple[WorkerStatus, ...], elapsed_s: float
    ) -> None: ...
    def close(self) -> None: ...


@pytest.mark.parametrize("address", ["127.0.0.1:0", "[::1]:0"])
def test_the_figures_on_the_screen_are_served(tmp_path: Path, address: str) -> None:
    """HTTP serves the newest figures; other paths do not exist."""
    if "[" in address and not Path("/proc/net/if_inet6").exists():
        pytest.skip("this machine has no IPv6")
    server = MetricsServer(address)
    reader = RunReader(tmp_path)
    screen = MeteredScreen(NoScreen(), server, reader)
    for status in ("running", "draining"):
        screen.show(Snapshot(run_id="r", status=status), WORKERS, 0.0)
        code, kind, text = get(server.url)
        assert code == 200
        assert kind.startswith("text/plain; version=0.0.4")
        assert f'stark_run_info{{run="r",status="{status}"}}' in read(text)
    assert get(server.url.replace("/metrics", "/"))[0] == 404
    server.close()
    reader.close()


@pytest.mark.parametrize("address", ["9464", ":9464", "127.0.0.1:", "127.0.0.1:99999", "in use"])
def test_an_unusable_address_is_one_line(address: str) -> None:
    """The mistake is found before anything is made."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = address.replace("in use", f"127.0.0.1:{other.getsockname()[1]}")
        with pytest.raises(UsageError, match="--metrics: ") as error:
            MetricsServer(address)
    assert "\n" not in str(error.value)
