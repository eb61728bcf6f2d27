"""A server that answers as the page's does, over made-up runs and in a thread."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from page_sample import PageSample

from actors.supervisor.page import PAGE

TOKEN = "token-of-the-tests"  # noqa: S105
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
    " img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}


class PageServer:
    """The sample runs behind HTTP; it can be killed in the middle of a stream and started again."""

    def __init__(self, *samples: PageSample, steer: bool = False) -> None:
        self.samples = {sample.run["id"]: sample for sample in samples}
        self.steer = steer
        self.port = 0
        self.submitted: list[dict[str, Any]] = []
        self.paths: list[str] = []  # every request
        self.streams = 0  # open now
        self.most_streams = 0
        self.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    @property
    def link(self) -> str:
        return f"{self.address}#token={TOKEN}"

    def start(self) -> None:
        """Listen, on the port of before where there was one."""
        self.is_up = True
        handler: Callable[..., Handler] = partial(Handler, self)
        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def kill(self) -> None:
        """End at once: the port is closed and every stream breaks off."""
        self.is_up = False
        self.server.shutdown()
        self.server.server_close()


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"

    def __init__(self, owner: PageServer, *args: Any) -> None:
        self.owner = owner
        super().__init__(*args)

    def do_GET(self) -> None:
        self.owner.paths.append(self.path)
        if not self.owner.is_up:
            self.close_connection = True
            return
        url = urlsplit(self.path)
        name = url.path.lstrip("/") or "index.html"
        file = PAGE / name
        if not name.startswith("api/"):
            if file.is_file() and ".." not in name:
                self.answer(HTTPStatus.OK, file.read_bytes(), TYPES.get(file.suffix, "text/plain"))
            else:
                self.error(HTTPStatus.NOT_FOUND, "no such file")
        elif f"session={TOKEN}" not in self.headers.get("Cookie", ""):
            self.error(HTTPStatus.UNAUTHORIZED, "no token")
        else:
            self.answer_api(url.path, int(parse_qs(url.query).get("seq", ["0"])[0]))

    def answer_api(self, path: str, seq: int) -> None:
        samples = self.owner.samples
        if path == "/api/runs":
            names = [
                {
                    "id": key,
                    "name": one.name,
                    "status": one.run["status"],
                    "tasks": [one.task["name"]],
                }
                for key, one in samples.items()
            ]
            self.answer_json({"runs": names, "steer": self.owner.steer})
            return
        found = re.fullmatch(r"/api/run/([^/]+)/(since|stream|question/.+|node/(.+)/(\d+))", path)
        sample = samples.get(unquote(found[1])) if found else None
        if found is None or sample is None:
            self.error(HTTPStatus.NOT_FOUND, "no such run")
        elif found[2] == "since":
            self.answer_json(sample.since(seq))
        elif found[2] == "stream":
            self.stream(sample, seq)
        elif found[2].startswith("question/"):
            name = found[2].partition("/")[2]
            self.answer_json({"name": name, "text": sample.questions[name]})
        elif int(found[4]) in sample.nodes:
            self.answer_json(sample.node(int(found[4])))
        else:
            self.error(HTTPStatus.NOT_FOUND, f"there is no node {found[4]}")

    def do_POST(self) -> None:
        self.owner.paths.append(self.path)
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        if self.path == "/api/session":
            if body.get("token") != TOKEN:
                self.error(HTTPStatus.UNAUTHORIZED, "wrong token")
                return
            cookie = f"session={TOKEN}; HttpOnly; SameSite=Strict; Path=/"
            self.answer(HTTPStatus.NO_CONTENT, b"", "text/plain", {"Set-Cookie": cookie})
        elif not self.owner.steer:
            self.error(
                HTTPStatus.METHOD_NOT_ALLOWED, "this server only reads: start watch with --steer"
            )
        else:
            self.owner.submitted.append(body)
            self.answer_json({"key": body["key"]}, HTTPStatus.ACCEPTED)

    def stream(self, sample: PageSample, seq: int) -> None:
        self.close_connection = True
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.owner.streams += 1
        self.owner.most_streams = max(self.owner.most_streams, self.owner.streams)
        server = self.owner.server
        try:
            while self.owner.is_up and self.owner.server is server:
                if sample.seq > seq:
                    delta = sample.since(seq)
                    seq = delta["seq"]
                    text = f"id: {seq}\nevent: delta\ndata: {json.dumps(delta)}\n\n"
                else:
                    text = ": beat\n\n"
                self.wfile.write(text.encode())
                self.wfile.flush()
                time.sleep(0.05)
        except OSError:
            pass  # the reader has gone
        finally:
            self.owner.streams -= 1

    def answer_json(self, value: Any, status: HTTPStatus = HTTPStatus.OK) -> None:
        self.answer(status, json.dumps(value).encode(), "application/json")

    def error(self, status: HTTPStatus, text: str) -> None:
        self.answer(status, json.dumps({"error": text}).encode(), "application/json")

    def answer(
        self, status: HTTPStatus, body: bytes, kind: str, more: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        if status is not HTTPStatus.NO_CONTENT:
            self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Content-Security-Policy", POLICY)
        for name, value in (more or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing: the tests read `PageServer.paths`."""


Serve = Callable[..., PageServer]
