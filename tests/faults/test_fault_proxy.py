"""The faulty network does what it says; and behind one, workers and coordinator lose nothing."""

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
    """A server that says back whatever it hears."""

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


def test_it_passes_every_byte_in_order(proxy: FaultyProxy) -> None:
    """Megabytes both ways, also while a delay is set."""
    sent = random.Random(1).randbytes(3_000_000)
    with connect(proxy) as connection:
        proxy.delay(0.05)
        threading.Thread(target=connection.sendall, args=(sent,), daemon=True).start()
        assert sent == read(connection, len(sent))


def test_a_hole_swallows_and_its_end_cuts(proxy: FaultyProxy) -> None:
    """Nothing is heard, nothing is closed; once it passes again, old connections are gone."""
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
    """One bit of one chunk; what follows is as it was."""
    with connect(proxy) as connection:
        proxy.flip(Direction.UP)
        connection.sendall(bytes(9))
        flipped = read(connection, 9)
        connection.sendall(bytes(9))
        assert bytes(9) == read(connection, 9)
    assert 1 == sum(bin(byte).count("1") for byte in flipped)
    assert 1 == proxy.flipped


def test_a_half_closed_way_ends_and_the_other_goes_on(proxy: FaultyProxy) -> None:
    """As after shutdown(SHUT_WR): the far end answers what it got, then closes."""
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


def behind_a_hole(folder: Path, ways: tuple[Direction, ...]) -> Ledger:
    """Return the ledger of a run whose evaluator was cut off past its lease."""
    port = socket.create_server(("127.0.0.1", 0))
    listen = f"tcp://127.0.0.1:{port.getsockname()[1]}"
    port.close()
    proxy = FaultyProxy(("127.0.0.1", int(listen.rpartition(":")[2])))
    with ScriptedRun.playing(folder, budget=BUDGET, listen=listen, elsewhere=proxy.endpoint) as run:
        while run.progress() < 3:
            time.sleep(0.01)
        proxy.drop_traffic(*ways)
        time.sleep(1.5 * LEASE_S)
        proxy.drop_traffic()
        run.wait()
    proxy.close()
    return run.ledger()


@pytest.fixture(scope="module")
def play(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Ledger]]:
    """Return the ledger of a scene: a run with that partition."""

    def one(scene: str) -> Ledger:
        return behind_a_hole(tmp_path_factory.mktemp("scene") / "run", PARTITIONS[scene])

    with parallel_scenes.played_in_parallel(request, one) as play:
        yield play


@pytest.fixture(scope="module")
def calm(play: Callable[[str], Ledger], tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """The ledger of a run without a network between."""
    with ScriptedRun.playing(tmp_path_factory.mktemp("calm") / "run", budget=BUDGET) as run:
        run.wait()
    return run.ledger()


@pytest.mark.parametrize("scene", PARTITIONS)
def test_a_partition_past_the_lease_loses_nothing(
    scene: str, calm: Ledger, play: Callable[[str], Ledger]
) -> None:
    """An evaluator behind it is silent past its lease, or hears nothing: the tree is the same."""
    assert calm == play(scene)
