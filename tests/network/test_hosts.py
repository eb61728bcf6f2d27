"""Two and three hosts in network namespaces: partitions, healing, encrypted traffic.

The tests are skipped, with the reason, where namespaces can't be made.
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
from namespace_hosts import Hosts, unavailable_reason
from net_run import ENVIRONMENT, NetRun

UNAVAILABLE = unavailable_reason()
pytestmark = pytest.mark.skipif(bool(UNAVAILABLE), reason=UNAVAILABLE or "available")

BUDGET = 6
EVERYWHERE = "0.0.0.0"  # noqa: S104  # with keys
LONG_S = float(os.environ.get("PARTITION_S", "5"))  # leases last 3 s here, heartbeats 0.5 s


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[tuple]:
    """The nodes of an undisturbed run on one machine."""
    run = FakeRun(tmp_path_factory.mktemp("undisturbed") / "run", budget=BUDGET)
    run.start_all()
    try:
        run.wait()
        return run.nodes()
    finally:
        run.stop()


@contextmanager
def spread(folder: Path, hosts: Hosts, **places: str) -> Iterator[NetRun]:
    """A run with its coordinator at the centre; `places`: worker -> host."""
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


def check_database(run: NetRun) -> None:
    """Check that each stage has one lease that is done, and that no lease or attempt is open."""
    assert run.rows("SELECT COUNT(*) FROM lease WHERE ended IS NULL") == [(0,)]
    assert run.rows("SELECT COUNT(*) FROM attempt WHERE state != 'done'") == [(0,)]
    done = run.rows("SELECT work, COUNT(*) FROM lease WHERE outcome = 'done' GROUP BY work")
    assert {count for _, count in done} == {1}


@pytest.mark.long
@pytest.mark.parametrize("seconds", [2.0, LONG_S])
def test_a_partition_shorter_and_longer_than_a_lease(
    seconds: float, undisturbed: list[tuple], tmp_path: Path
) -> None:
    """The evaluator's machine is cut off and comes back with the same processes.

    The tree is that of an undisturbed run.
    """
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
        assert undisturbed == run.nodes()
        check_database(run)


@pytest.mark.long
def test_three_hosts_with_two_partitions(undisturbed: list[tuple], tmp_path: Path) -> None:
    """The machine of the agents and that of the evaluator are cut off one after the other."""
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
        assert undisturbed == run.nodes()
        check_database(run)


def test_traffic_between_hosts_is_encrypted(undisturbed: list[tuple], tmp_path: Path) -> None:
    """Sources, plans, slots, the first bytes of our frames and secrets are not on the link.

    A packet in clear text over the same link is found, so the check itself works.
    """
    captured = tmp_path / "wire"
    with Hosts(("a", "b")) as hosts, captured.open("wb") as wire:
        sniffer = subprocess.Popen(
            [*hosts.inside("b"), sys.executable, str(Path(__file__).with_name("sniffer.py")),
             "eth0"],
            stdout=wire, env=ENVIRONMENT,
        )  # fmt: skip
        try:
            while not captured.stat().st_size:
                assert sniffer.poll() is None
                time.sleep(0.01)
            with spread(tmp_path, hosts, evaluator="b", coder="b") as run:
                run.wait()
            assert undisturbed == run.nodes()
            send_clear_text(hosts)
            time.sleep(0.3)  # the sniffer may still be writing
        finally:
            sniffer.kill()
            sniffer.wait()
    packets = captured.read_bytes()
    assert b"in the clear: MakePlan" in packets
    assert len(packets) > 20_000
    secrets = [pair.secret.encode() for pair in run.ticket.keys.values()]
    for word in (b"# the reference", b"STARK", b"advice", b"evaluator-0", b"scripted", *secrets):
        assert word not in packets


def send_clear_text(hosts: Hosts) -> None:
    """Send one readable packet from the second host to the first."""
    program = (
        "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM);"
        f"s.sendto(b'in the clear: MakePlan', ('{hosts.address('b')}', 9))"
    )
    subprocess.run([*hosts.inside("b"), sys.executable, "-c", program], check=True, timeout=20)
