"""A TCP proxy on loopback that flips one byte of a server's traffic on request."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from urllib.parse import urlsplit


class BitFlipper:
    """Forwards bytes; after `flip` it changes one byte of the next long piece to a client."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._target = (parts.hostname, parts.port)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._server.getsockname()[1]}"
        self.flipped = 0
        self._armed = threading.Event()
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def flip(self) -> None:
        self._armed.set()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._server.accept()
                try:
                    far = socket.create_connection(self._target)
                except OSError:
                    near.close()
                    continue
                self._sockets += [near, far]
                for source, sink, hostile in ((near, far, False), (far, near, True)):
                    threading.Thread(
                        target=self._pass, args=(source, sink, hostile), daemon=True
                    ).start()

    def _pass(self, source: socket.socket, sink: socket.socket, hostile: bool) -> None:
        with suppress(OSError):
            while piece := source.recv(65536):
                if hostile and len(piece) > 100 and self._armed.is_set():
                    self._armed.clear()
                    self.flipped += 1
                    middle = len(piece) // 2
                    piece = piece[:middle] + bytes([piece[middle] ^ 1]) + piece[middle + 1 :]
                sink.sendall(piece)
        for one in (source, sink):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> BitFlipper:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()
        for one in self._sockets:
            one.close()
