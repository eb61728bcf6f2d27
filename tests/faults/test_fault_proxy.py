"""The fault proxy itself, and runs whose evaluator connects through it: nothing is lost."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import parallel_scenes
import pytest
from scripted_run import LEASE_S, ScriptedRun

from scripts.faults.tcp_proxy import Direction, FaultyProxy

BUDGET = 8


class Echo:
    """A server that sends back the bytes that it receives."""

    def __init__(self) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.server.accept()
            except OSError:
                return
            threading.Thread(target=self._echo, args=(connection,), daemon=True).start()

    def _echo(self, connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(65536):
                    connection.sendall(data)
            except OSError:
                return


@pytest.fixture
def proxy():
    echo = Echo()
    proxy = FaultyProxy(echo.server.getsockname()[:2])
    yield proxy
    proxy.close()
    echo.server.close()


def connect(proxy: FaultyProxy) -> socket.socket:
    connection = socket.create_connection(proxy.address)
    connection.settimeout(10.0)
    return connection


def read(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count and (more := connection.recv(65536)):
        data += more
    return data


def test_the_proxy_passes_every_byte_in_order(proxy: FaultyProxy) -> None:
    """Megabytes pass in both directions, also while a delay is set."""
    sent = random.Random(1).randbytes(3_000_000)
    with connect(proxy) as connection:
        proxy.delay(0.05)
        threading.Thread(target=connection.sendall, args=(sent,), daemon=True).start()
        assert sent == read(connection, len(sent))


def test_dropped_traffic_is_silent_and_its_end_closes_connections(proxy: FaultyProxy) -> None:
    """While traffic is dropped, no byte arrives and no connection closes; old connections close
    when traffic passes again."""
    with connect(proxy) as connection:
        connection.sendall(b"before")
        assert b"before" == read(connection, 6)
        proxy.drop_traffic(Direction.DOWN)
        connection.sendall(b"lost")
        connection.settimeout(0.5)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        proxy.drop_traffic()
        connection.settimeout(10.0)
        assert b"" == connection.recv(1)
    with connect(proxy) as connection:
        connection.sendall(b"after")
        assert b"after" == read(connection, 5)


def test_a_flip_changes_one_bit_once(proxy: FaultyProxy) -> None:
    """One bit of one chunk changes; later chunks are intact."""
    with connect(proxy) as connection:
        proxy.flip(Direction.UP)
        connection.sendall(bytes(9))
        flipped = read(connection, 9)
        connection.sendall(bytes(9))
        assert bytes(9) == read(connection, 9)
    assert 1 == sum(bin(byte).count("1") for byte in flipped)
    assert 1 == proxy.flipped


def test_a_half_closed_direction_ends_and_the_other_continues(proxy: FaultyProxy) -> None:
    """As after shutdown(SHUT_WR): the server answers the bytes that it received, then closes."""
    with connect(proxy) as connection:
        connection.sendall(b"last words")
        assert b"last words" == read(connection, 10)
        proxy.half_close(Direction.UP)
        assert b"" == connection.recv(1)


PARTITIONS = {
    "up": (Direction.UP,),
    "down": (Direction.DOWN,),
    "both": (Direction.UP, Direction.DOWN),
}
Ledger = tuple[list[tuple], ...]


def ledger_after_partition(folder: Path, directions: tuple[Direction, ...]) -> Ledger:
    """Return the ledger of a run with a partition that outlasts the evaluator's lease."""
    probe = socket.create_server(("127.0.0.1", 0))
    listen = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    probe.close()
    proxy = FaultyProxy(("127.0.0.1", int(listen.rpartition(":")[2])))
    with ScriptedRun.running(
        folder, budget=BUDGET, listen=listen, evaluator_address=proxy.endpoint
    ) as run:
        while run.progress() < 3:
            time.sleep(0.01)
        proxy.drop_traffic(*directions)
        time.sleep(1.5 * LEASE_S)
        proxy.drop_traffic()
        run.wait()
    proxy.close()
    return run.ledger()


@pytest.fixture(scope="module")
def run_scene(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Ledger]]:
    """Return a function: scene -> the ledger of a run with that partition."""

    def run_in_new_folder(scene: str) -> Ledger:
        return ledger_after_partition(tmp_path_factory.mktemp("scene") / "run", PARTITIONS[scene])

    with parallel_scenes.scenes_in_parallel(request, run_in_new_folder) as run_scene:
        yield run_scene


@pytest.fixture(scope="module")
def undisturbed_ledger(
    run_scene: Callable[[str], Ledger], tmp_path_factory: pytest.TempPathFactory
) -> Ledger:
    """The ledger of a run whose evaluator connects directly."""
    with ScriptedRun.running(tmp_path_factory.mktemp("undisturbed") / "run", budget=BUDGET) as run:
        run.wait()
    return run.ledger()


@pytest.mark.long
@pytest.mark.parametrize("scene", PARTITIONS)
def test_a_partition_past_the_lease_loses_nothing(
    scene: str, undisturbed_ledger: Ledger, run_scene: Callable[[str], Ledger]
) -> None:
    """The coordinator receives nothing from the evaluator, or the evaluator receives nothing, for
    longer than a lease: the ledger is the same."""
    assert undisturbed_ledger == run_scene(scene)
