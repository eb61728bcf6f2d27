"""Two and three hosts in network namespaces: partitions, healing, nothing to read on the wire.

Skipped, with the reason, where no namespaces can be made.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fake_run import FakeRun
from namespace_hosts import Hosts, why_not
from net_run import ENVIRONMENT, NetRun

WHY_NOT = why_not()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "fine")

BUDGET = 6
EVERYWHERE = "0.0.0.0"  # noqa: S104  # with keys
LONG_S = float(os.environ.get("PARTITION_S", "5"))  # leases last 3 s here, heartbeats 0.5 s


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> list[tuple]:
    """The nodes of a run on one machine that nobody disturbs."""
    run = FakeRun(tmp_path_factory.mktemp("calm") / "run", budget=BUDGET)
    run.start_all()
    try:
        run.wait()
        return run.nodes()
    finally:
        run.stop()


@contextmanager
def spread(folder: Path, hosts: Hosts, **places: str) -> Iterator[NetRun]:
    """A run whose coordinator is at the centre; `places` says which workers are on which host."""
    inside = {place: hosts.inside(host) for place, host in places.items()}
    inside["coordinator"] = hosts.inside(hosts.names[0])
    run = NetRun(
        folder / "run", budget=BUDGET, away=tuple(places), listen=EVERYWHERE, inside=inside,
        reached=hosts.address(hosts.names[1]),
    )  # fmt: skip
    port = run.address.rpartition(":")[2]
    run.addresses = {place: f"tcp://{hosts.address(host)}:{port}" for place, host in places.items()}
    run.start_all()
    try:
        yield run
    finally:
        run.stop()


def wait_for(run: NetRun, nodes: int) -> None:
    until = time.monotonic() + 60
    while run.progress() < nodes:
        assert time.monotonic() < until, (run.run_dir / "out.txt").read_text()
        run.revive()
        time.sleep(0.01)


def check_books(run: NetRun) -> None:
    """Every attempt once, one lease done for each stage, nothing open."""
    assert run.rows("SELECT COUNT(*) FROM lease WHERE ended IS NULL") == [(0,)]
    assert run.rows("SELECT COUNT(*) FROM attempt WHERE state != 'done'") == [(0,)]
    done = run.rows("SELECT work, COUNT(*) FROM lease WHERE outcome = 'done' GROUP BY work")
    assert {count for _, count in done} == {1}


@pytest.mark.parametrize("seconds", [2.0, pytest.param(LONG_S, marks=pytest.mark.long)])
def test_a_partition_shorter_and_longer_than_a_lease(
    seconds: float, calm: list[tuple], tmp_path: Path
) -> None:
    """The evaluator's machine falls off and comes back, with the same processes: the tree is that
    of a run that nobody disturbed."""
    with (
        Hosts(("a", "b")) as hosts,
        spread(tmp_path, hosts, evaluator="b") as run,
    ):
        wait_for(run, 2)
        pid = run.children["evaluator"].pid
        hosts.cut("b")
        time.sleep(seconds)
        hosts.heal("b")
        run.wait()
        assert pid == run.children["evaluator"].pid
        assert calm == run.nodes()
        check_books(run)


def test_three_hosts_of_which_each_falls_off_once(calm: list[tuple], tmp_path: Path) -> None:
    """Agents on one machine, an evaluator on another: one after the other is cut off."""
    with (
        Hosts(("a", "b", "c")) as hosts,
        spread(tmp_path, hosts, planner="b", coder="b", debugger="b", evaluator="c") as run,
    ):
        for name, nodes in (("b", 1), ("c", 3)):
            wait_for(run, nodes)
            hosts.cut(name)
            time.sleep(1.0)
            hosts.heal(name)
        run.wait()
        assert calm == run.nodes()
        check_books(run)


def test_nothing_on_the_wire_can_be_read(calm: list[tuple], tmp_path: Path) -> None:
    """Sources, plans, slots, our frames' first bytes and secrets: none of it is on the cable. What
    goes over the same cable in the clear is found, so the search itself works."""
    seen = tmp_path / "wire"
    with Hosts(("a", "b")) as hosts, seen.open("wb") as wire:
        sniffer = subprocess.Popen(
            [*hosts.inside("b"), sys.executable, str(Path(__file__).with_name("sniffer.py")),
             "eth0"],
            stdout=wire, env=ENVIRONMENT,
        )  # fmt: skip
        try:
            while not seen.stat().st_size:
                assert sniffer.poll() is None
                time.sleep(0.01)
            with spread(tmp_path, hosts, evaluator="b", coder="b") as run:
                run.wait()
            assert calm == run.nodes()
            speak_in_the_clear(hosts)
            time.sleep(0.3)  # what was said last is still being written down
        finally:
            sniffer.kill()
            sniffer.wait()
    packets = seen.read_bytes()
    assert b"in the clear: MakePlan" in packets
    assert len(packets) > 20_000
    secrets = [pair.secret.encode() for pair in run.ticket.keys.values()]
    for word in (b"# the reference", b"STARK", b"advice", b"evaluator-0", b"scripted", *secrets):
        assert word not in packets


def speak_in_the_clear(hosts: Hosts) -> None:
    """Send one readable packet from the second host to the first."""
    program = (
        "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM);"
        f"s.sendto(b'in the clear: MakePlan', ('{hosts.address('b')}', 9))"
    )
    subprocess.run([*hosts.inside("b"), sys.executable, "-c", program], check=True, timeout=20)
