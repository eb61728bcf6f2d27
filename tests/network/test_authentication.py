"""Authentication of other machines, on loopback: keys, roles, tickets, encryption."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq
from fake_run import FakeRun
from net_run import ENVIRONMENT, ROOT, NetRun, RawGuest

from protocol import key_ring, tickets
from protocol import settings as settings_file
from protocol.messages import (
    Drain,
    Evaluate,
    Evaluated,
    Heartbeat,
    Hello,
    Identify,
    Lease,
    MeasureReference,
    Planned,
    ReferenceMeasured,
    Refuse,
    Welcome,
    WorkerLost,
)
from protocol.tickets import ConnectionCredential
from protocol.values import Outcome, Plan, Reference, Role, Verdict

BUDGET = 6


@pytest.fixture
def run(tmp_path: Path) -> Iterator[NetRun]:
    """A run in which all workers connect with tickets."""
    run = NetRun(tmp_path / "run", budget=BUDGET)
    run.start("coordinator")
    run.listening()
    yield run
    run.stop()


def key(run: NetRun, role: Role) -> ConnectionCredential:
    credential = run.ticket.credential(role)
    assert credential is not None
    return credential


def hello(run: NetRun, role: Role, name: str, number: int = 7) -> Hello:
    own = f"{role}" if role is Role.SUPERVISOR else f"{role}-{number}"
    return Hello(role=role, slot=f"{own}@test-1.{run.ticket.name}", incarnation=name, pid=1)


def test_a_run_with_tickets_for_all_workers_grows_the_same_tree(
    run: NetRun, tmp_path: Path
) -> None:
    """CURVE and the ZAP handler change nothing in the run."""
    undisturbed = FakeRun(tmp_path / "undisturbed" / "run", budget=BUDGET)
    undisturbed.start_all()
    run.start_all_away()
    try:
        run.wait()
        undisturbed.wait()
        assert undisturbed.nodes() == run.nodes()
    finally:
        undisturbed.stop()


def test_peers_without_a_key_get_no_message_in(run: NetRun) -> None:
    """No key, a key that was not issued, and another server's key: none gets a handshake."""
    good = key(run, Role.EVALUATOR)
    unknown = ConnectionCredential(server=good.server, own=key_ring.new_key_pair(), beat_s=0.5)
    elsewhere = ConnectionCredential(
        server=key_ring.new_key_pair().public, own=good.own, beat_s=0.5
    )
    with (
        RawGuest(run.address, None) as plain,
        RawGuest(run.address, unknown) as with_unknown_key,
        RawGuest(run.address, elsewhere) as with_other_server,
        RawGuest(run.address, good) as guest,
    ):
        assert guest.wait_connected(10.0)
        assert not with_unknown_key.wait_connected()
        assert with_unknown_key.key_rejected
        assert not plain.wait_connected(1.0)
        assert not with_other_server.wait_connected(1.0)


def test_an_evaluators_key_is_not_valid_for_a_planner(run: NetRun) -> None:
    """A Hello of another role, or another role's message, is refused."""
    with RawGuest(run.address, key(run, Role.EVALUATOR)) as hostile:
        assert hostile.wait_connected(10.0)
        hostile.send(hello(run, Role.PLANNER, hostile.name))
        refusal = hostile.receive()
        assert isinstance(refusal, Refuse)
        assert "evaluator's" in refusal.reason
        hostile.send(hello(run, Role.EVALUATOR, hostile.name))
        assert isinstance(hostile.receive(), Welcome)
        lease = hostile.receive_until(MeasureReference).lease  # it is given work, as an evaluator
        hostile.send(Planned(lease=lease, plan=Plan(advice="mine", scaffold="")))
        assert "evaluator's" in hostile.receive_until(Refuse).reason
        hostile.send(Heartbeat())
        assert isinstance(hostile.receive_until(Identify), Identify)  # slot and lease are lost
    with RawGuest(run.address, key(run, Role.EVALUATOR)) as honest:
        honest.wait_connected(10.0)
        honest.send(hello(run, Role.EVALUATOR, honest.name, 8))
        assert honest.receive_until(MeasureReference).lease.work == lease.work
    assert run.rows("SELECT COUNT(*) FROM lease WHERE outcome = 'dismissed'") == [(1,)]


def test_results_for_leases_never_held_and_of_the_wrong_kind_are_refused(run: NetRun) -> None:
    """A verdict for unleased work, or as the result of a measurement, changes nothing."""
    with RawGuest(run.address, key(run, Role.EVALUATOR)) as hostile:
        hostile.wait_connected(10.0)
        hostile.send(hello(run, Role.EVALUATOR, hostile.name))
        lease = hostile.receive_until(MeasureReference).lease
        lie = Verdict(verdict=Outcome.CORRECT, median_us=1.0, speedup=1000.0)
        hostile.send(Evaluated(lease=Lease(work="t/1/evaluate", epoch=lease.epoch), verdict=lie))
        assert "never leased" in hostile.receive_until(Refuse).reason
        hostile.send(hello(run, Role.EVALUATOR, hostile.name))
        lease = hostile.receive_until(MeasureReference).lease
        hostile.send(Evaluated(lease=lease, verdict=lie))
        assert "does not end with Evaluated" in hostile.receive_until(Refuse).reason
    run.start_all_away()
    run.wait()
    assert len(run.nodes()) == BUDGET + 1


def test_a_guest_can_not_end_a_task_that_this_machine_can_measure(run: NetRun) -> None:
    """Its report that the reference can't be measured sends the work to a local evaluator."""
    with RawGuest(run.address, key(run, Role.EVALUATOR)) as guest:
        guest.wait_connected(10.0)
        guest.send(hello(run, Role.EVALUATOR, guest.name))
        lease = guest.receive_until(MeasureReference).lease
        run.away = ()
        run.start("evaluator")
        up = "SELECT 1 FROM worker WHERE slot = 'evaluator-0' AND state = 'up'"
        until = time.monotonic() + 20
        while not run.rows(up):
            guest.send(Heartbeat(held_leases=(lease,)))
            assert time.monotonic() < until
            time.sleep(0.05)
        guest.send(ReferenceMeasured(lease=lease, problem="it is no good"))
        while not run.rows("SELECT 1 FROM task WHERE reference IS NOT NULL"):
            assert time.monotonic() < until
            time.sleep(0.05)
    assert run.rows("SELECT slot FROM lease WHERE outcome = 'done'") == [("evaluator-0",)]
    assert run.rows("SELECT detail FROM event WHERE what = 'doubted'") == [("it is no good",)]


def test_a_joined_supervisor_ends_neither_the_run_nor_others(run: NetRun) -> None:
    """Drain is refused; a loss counts only for its own machine's slots and their incarnations."""
    with (
        RawGuest(run.address, key(run, Role.SUPERVISOR)) as supervisor,
        RawGuest(run.address, key(run, Role.EVALUATOR)) as worker,
    ):
        worker.wait_connected(10.0)
        worker.send(hello(run, Role.EVALUATOR, worker.name))
        worker.receive_until(MeasureReference)
        supervisor.wait_connected(10.0)
        for forbidden in (
            Drain(),
            WorkerLost(slot=f"evaluator-7@test-2.{run.ticket.name}", incarnation=worker.name),
        ):
            supervisor.send(hello(run, Role.SUPERVISOR, supervisor.name))
            welcome = supervisor.receive_until(Welcome)
            supervisor.send(forbidden)
            assert isinstance(supervisor.receive_until(Refuse), Refuse)
        assert settings_file.parse(welcome.settings) == run.settings
        supervisor.send(hello(run, Role.SUPERVISOR, supervisor.name))
        supervisor.receive_until(Welcome)
        supervisor.send(
            WorkerLost(slot=f"evaluator-8@test-1.{run.ticket.name}", incarnation=worker.name)
        )
        supervisor.send(Heartbeat(credit=0))
        worker.send(Heartbeat())
        assert run.rows("SELECT COUNT(*) FROM lease WHERE ended IS NULL") == [(1,)]
        assert run.rows("SELECT status FROM run") == [("running",)]


def test_a_revocation_takes_effect_at_once(run: NetRun) -> None:
    """A revoked ticket loses its slots and leases, and its key is rejected.

    Other tickets are not affected.
    """
    other = run.issue(run.guest / "other.json")
    with RawGuest(run.address, key(run, Role.EVALUATOR)) as guest:
        guest.wait_connected(10.0)
        guest.send(hello(run, Role.EVALUATOR, guest.name))
        guest.receive_until(MeasureReference)
        done = subprocess.run(
            [sys.executable, str(ROOT / "scripts" / "tickets.py"), str(run.run_dir), "revoke",
             run.ticket.name],
            capture_output=True, text=True, check=False, env=ENVIRONMENT, cwd=run.guest,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        until = time.monotonic() + 20
        refused = None
        while refused is None and time.monotonic() < until:
            guest.send(Heartbeat(sent_at=1.0))  # answered by HeartbeatAck or Refuse
            message = guest.receive()
            refused = message if isinstance(message, Refuse) else None
        assert refused is not None
        assert "revoked" in refused.reason
    with RawGuest(run.address, key(run, Role.EVALUATOR)) as again:
        assert not again.wait_connected()
        assert again.key_rejected
    credential = other.credential(Role.EVALUATOR)
    with RawGuest(run.address, credential) as welcome:
        assert welcome.wait_connected(10.0)
        slot = f"evaluator-0@test-1.{other.name}"
        welcome.send(Hello(role=Role.EVALUATOR, slot=slot, incarnation=welcome.name, pid=1))
        assert welcome.receive_until(MeasureReference).lease.work == "t/0/measure"


@pytest.mark.parametrize("hours", ["inf", "1e9", "0", "nan"])
def test_a_ticket_without_a_usable_expiry_is_refused(run: NetRun, hours: str) -> None:
    """Such an expiry is not written into the key ring, which would be unreadable afterwards."""
    before = (run.run_dir / key_ring.FILE_NAME).read_bytes()
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "tickets.py"), str(run.run_dir), "new",
         "--hours", hours],
        capture_output=True, text=True, check=False, env=ENVIRONMENT, cwd=run.guest,
    )  # fmt: skip
    assert (2, 1) == (done.returncode, len(done.stderr.splitlines()))
    assert (run.run_dir / key_ring.FILE_NAME).read_bytes() == before


def test_a_ticket_that_can_not_be_written_is_not_issued(run: NetRun) -> None:
    """The error is one line, and the key ring is unchanged."""
    before = (run.run_dir / key_ring.FILE_NAME).read_bytes()
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "tickets.py"), str(run.run_dir), "new",
         "--out", "absent/ticket.json"],
        capture_output=True, text=True, check=False, env=ENVIRONMENT, cwd=run.guest,
    )  # fmt: skip
    assert (2, 1) == (done.returncode, len(done.stderr.splitlines()))
    assert "can't write absent/ticket.json" in done.stderr
    assert (run.run_dir / key_ring.FILE_NAME).read_bytes() == before


def test_an_expired_ticket_is_rejected(run: NetRun) -> None:
    """Its key is rejected, and a connected peer is refused when its ticket expires."""
    late = run.issue(run.guest / "late.json", seconds=-1)
    with RawGuest(run.address, late.credential(Role.EVALUATOR)) as guest:
        assert not guest.wait_connected()
        assert guest.key_rejected
    short = run.issue(run.guest / "short.json", seconds=4)
    with RawGuest(run.address, short.credential(Role.SUPERVISOR)) as guest:
        assert guest.wait_connected(10.0)
        slot = f"supervisor@test-1.{short.name}"
        guest.send(Hello(role=Role.SUPERVISOR, slot=slot, incarnation=guest.name, pid=1))
        guest.receive_until(Welcome)
        until = time.monotonic() + 20
        while time.monotonic() < until:
            guest.send(Heartbeat(credit=0, sent_at=1.0))
            message = guest.receive()
            if isinstance(message, Refuse):
                break
        assert isinstance(message, Refuse)
        assert "expired" in message.reason


@pytest.mark.parametrize("address", ["tcp://0.0.0.0:{port}", "tcp://*:{port}"])
def test_traffic_beyond_loopback_is_always_encrypted(tmp_path: Path, address: str) -> None:
    """A coordinator that was started by hand refuses a public address without keys."""
    run = FakeRun(tmp_path / "run", budget=1)
    from net_run import free_port

    public = address.format(port=free_port())
    for argv in (["--listen", public], []):
        if not argv:
            settings = settings_file.read(run.run_dir)
            from msgspec.structs import replace

            settings_file.write(run.run_dir, replace(settings, listen=public))
        done = subprocess.run(
            [sys.executable, "-m", "actors.coordinator", *argv],
            capture_output=True, text=True, check=False, env=ENVIRONMENT, cwd=run.run_dir,
            timeout=30, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert (2, 1) == (done.returncode, len(done.stderr.splitlines()))
        assert "--listen" in done.stderr


def test_secrets_are_in_private_files_only(run: NetRun) -> None:
    """Only the owner can read key ring and ticket.

    No process has a key in its arguments or environment, and each worker's file has only the key of
    its role.
    """
    run.start_all_away()
    for path in (run.run_dir / key_ring.FILE_NAME, run.run_dir / tickets.FILE_NAME):
        assert path.stat().st_mode & 0o777 == 0o600
    known = key_ring.read(run.run_dir)
    assert known is not None
    pairs = [*run.ticket.keys.values(), known.server]
    for place, child in run.children.items():
        words = Path(f"/proc/{child.pid}/cmdline").read_bytes()
        words += Path(f"/proc/{child.pid}/environ").read_bytes()
        assert not any(pair.secret.encode() in words for pair in pairs)
        if place in run.away:
            text = (run.guest / f"{place}.json").read_text()
            assert sum(pair.secret in text for pair in pairs) == 1
    ring_text = (run.run_dir / key_ring.FILE_NAME).read_text()
    assert not any(pair.secret in ring_text for pair in run.ticket.keys.values())
    run.wait()


def test_a_flipped_byte_costs_a_connection_and_nothing_else(run: NetRun, tmp_path: Path) -> None:
    """CURVE drops the changed message, libzmq then gives up, and the worker connects again."""
    from bit_flipper import BitFlipper

    undisturbed = FakeRun(tmp_path / "undisturbed" / "run", budget=BUDGET)
    undisturbed.start_all()
    undisturbed.wait()
    undisturbed.stop()
    with BitFlipper(run.address) as proxy:
        run.address = proxy.address
        run.start_all_away()
        for nodes in (1, 3):
            while run.progress() < nodes:
                run.revive()
                time.sleep(0.01)
            proxy.flip()
        run.wait()
        assert proxy.flipped >= 2
    assert undisturbed.nodes() == run.nodes()


def test_a_reference_has_the_device_of_its_evaluators_hello(run: NetRun) -> None:
    """An evaluator can't claim another device: tasks stay on the device's kind."""
    with RawGuest(run.address, key(run, Role.EVALUATOR)) as hostile:
        hostile.wait_connected(10.0)
        hostile.send(hello(run, Role.EVALUATOR, hostile.name))
        lease = hostile.receive_until(MeasureReference).lease
        from protocol.values import Device

        reference = Reference(eager_us=100.0, device=Device(fingerprint="another device"))
        hostile.send(ReferenceMeasured(lease=lease, reference=reference))
    for place in ("planner", "coder", "debugger"):
        run.start(place)
    until = time.monotonic() + 40
    while not run.rows("SELECT 1 FROM attempt WHERE state = 'evaluate'"):
        assert time.monotonic() < until
        time.sleep(0.05)
    with RawGuest(run.address, key(run, Role.EVALUATOR)) as other:
        other.wait_connected(10.0)
        other.send(hello(run, Role.EVALUATOR, other.name))
        assert other.receive_until(Evaluate, 20.0).reference.device.fingerprint == ""


assert zmq.has("curve"), "the installed libzmq has no CURVE"
