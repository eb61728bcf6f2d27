"""A watch server in a thread, and requests to it that a browser would not send."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from actors.watch import server
from actors.watch.access import new_token

JSON = "application/json"

HOSTILE = "</script><img src=x onerror=alert(1)>\u2028\u202e'\"`${x}\x00\x1b[2J"


class WatchClient:
    """Sends requests to one server; every header can be replaced or left out (None)."""

    def __init__(self, port: int, token: str) -> None:
        self.port = port
        self.token = token
        self.host = f"127.0.0.1:{port}"

    def send(
        self,
        path: str,
        *,
        method: str = "GET",
        body: bytes | str | None = None,
        token: str | None = "",
        **headers: str | None,
    ) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers (lower case) and body; `token` "" is the right one."""
        content = body.encode() if isinstance(body, str) else body
        named = {"host": self.host}
        if method == "POST":
            named |= {
                "origin": f"http://{self.host}",
                "content-type": JSON,
                "content-length": str(len(content or b"")),
            }
        if token is not None:
            named["authorization"] = f"Bearer {token or self.token}"
        for name, value in headers.items():
            named.pop(name.replace("_", "-"), None)
            if value is not None:
                named[name.replace("_", "-")] = value
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in named.items():
                connection.putheader(name, value)
            connection.endheaders(content)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, found, answer.read()
        finally:
            connection.close()

    def status(self, path: str, **options: Any) -> int:
        """Return the status of an answer."""
        return self.send(path, **options)[0]

    def json(self, path: str, **options: Any) -> Any:
        """Return the JSON of an answer."""
        return json.loads(self.send(path, **options)[2])

    def events(self, path: str, count: int, **headers: str) -> list[tuple[int, dict[str, Any]]]:
        """Return the first events of a stream: (id, data)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            authorization = {"authorization": f"Bearer {self.token}"}
            connection.request("GET", path, headers={**authorization, **headers})
            answer = connection.getresponse()
            found: list[tuple[int, dict[str, Any]]] = []
            number = 0
            while len(found) < count:
                line = answer.readline().decode()
                if line.startswith("id:"):
                    number = int(line.removeprefix("id:"))
                elif line.startswith("data:"):
                    found.append((number, json.loads(line.removeprefix("data:"))))
                elif not line:
                    break
            return found
        finally:
            connection.close()


@contextmanager
def watching(*runs: Path, steer: bool = False) -> Iterator[WatchClient]:
    """Serve runs until the end of the block."""
    options = server.ServerOptions(runs=runs, may_steer=steer)
    token = new_token()
    with server.listening_socket(options) as listening:
        watch = server.watch_server(options, listening, token)
        thread = threading.Thread(target=server.serve, args=(watch, listening), daemon=True)
        thread.start()
        while not watch.started:
            time.sleep(0.01)
        try:
            yield WatchClient(listening.getsockname()[1], token)
        finally:
            watch.end()
            thread.join(10)


def run_of(client: WatchClient) -> str:
    """Return the address of the only run."""
    (run,) = client.json("/api/runs")["runs"]
    return f"/api/run/{run['id']}"
