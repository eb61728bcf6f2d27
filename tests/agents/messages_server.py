"""A real HTTP server that speaks the streamed Messages API, errors and accidents included.

    with MessagesServer(answer(text="hello"), answer(status=429)) as server:
        ...  # base_url=server.url; server.requests holds the requests

Each POST takes the next answer; the last one repeats.  `answers` may also be a function from the
request's body to an answer.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the server does with one request."""

    text: str = ""
    stop: str | int | None = "end_turn"  # a number: a server that is careless of types
    status: int = 200
    error: str = "api_error"  # the error's type, with a status other than 200
    message: str = "an error of the test server"
    headers: dict[str, str] = field(default_factory=dict)
    input_tokens: int = 100
    cache_write_tokens: int = 0
    cache_read_tokens: int = 0
    output_tokens: int = 20
    last_usage: dict[str, int] = field(default_factory=dict)  # more counts, in the last event
    cut: bool = False  # the connection ends in the middle of the text
    error_in_stream: str = ""  # an error event of this type after half of the text
    raw: bytes | None = None  # sent as it is, as a 200
    gate: threading.Event | None = None  # nothing is sent before it is set
    half_gate: threading.Event | None = None  # half of the text is sent before it is set
    pause_s: float = 0.0  # before each event; the text comes one character at a time
    flood: bool = False  # endless text, until the client disconnects


@dataclass(frozen=True)
class ServedRequest:
    """One request as it came."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


def answer(**fields: Any) -> Answer:
    """Return an `Answer`; the short name reads better in a list of them."""
    return Answer(**fields)


class MessagesServer:
    """The server; runs while its `with` block does."""

    def __init__(self, *answers: Answer, choose: Callable[[dict[str, Any]], Answer] | None = None):
        self._answers = list(answers)
        self._choose = choose
        self._lock = threading.Lock()
        self.requests: list[ServedRequest] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                length = int(self.headers.get("content-length", "0"))
                body = json.loads(self.rfile.read(length))
                outer._serve(self, ServedRequest(self.path, dict(self.headers.items()), body))

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> MessagesServer:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _next(self, asked: ServedRequest) -> Answer:
        with self._lock:
            self.requests.append(asked)
            if self._choose is not None:
                return self._choose(asked.body)
            return self._answers[min(len(self.requests), len(self._answers)) - 1]

    def _serve(self, handler: BaseHTTPRequestHandler, asked: ServedRequest) -> None:
        chosen = self._next(asked)
        if chosen.gate is not None:
            chosen.gate.wait(20)
        if chosen.raw is not None:
            _send(handler, 200, "text/html", chosen.raw, chosen.headers)
        elif chosen.status != 200:
            error = {"type": chosen.error, "message": chosen.message}
            body = json.dumps({"type": "error", "error": error}).encode()
            _send(handler, chosen.status, "application/json", body, chosen.headers)
        else:
            # No length: the end of the connection is the end of the stream, also a too early one.
            handler.close_connection = True
            handler.send_response(200)
            handler.send_header("content-type", "text/event-stream")
            handler.send_header("connection", "close")
            handler.end_headers()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                for event in _events(chosen, str(asked.body.get("model"))):
                    time.sleep(chosen.pause_s)
                    handler.wfile.write(
                        f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
                    )


def _send(
    handler: BaseHTTPRequestHandler, status: int, kind: str, body: bytes, headers: dict[str, str]
) -> None:
    handler.send_response(status)
    for name, value in {"content-type": kind, **headers, "content-length": str(len(body))}.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body)


def _events(chosen: Answer, model: str) -> Iterator[dict[str, Any]]:
    usage = {
        "input_tokens": chosen.input_tokens,
        "cache_creation_input_tokens": chosen.cache_write_tokens,
        "cache_read_input_tokens": chosen.cache_read_tokens,
        "output_tokens": 1,
    }
    yield {
        "type": "message_start",
        "message": {
            "id": "msg_test",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage,
        },
    }
    yield {"type": "ping"}
    half = len(chosen.text) // 2
    if chosen.text:
        block = {"type": "text", "text": ""}
        yield {"type": "content_block_start", "index": 0, "content_block": block}
        yield _delta(chosen.text[:half])
    if chosen.half_gate is not None:
        chosen.half_gate.wait(20)
    while chosen.flood:
        yield _delta("words and words " * 1000)
    if chosen.pause_s:
        yield from (_delta(letter) for letter in chosen.text[half:])
    if chosen.error_in_stream:
        error = {"type": chosen.error_in_stream, "message": chosen.message}
        yield {"type": "error", "error": error}
        return
    if chosen.cut:
        return
    if chosen.text:
        yield _delta(chosen.text[half:])
        yield {"type": "content_block_stop", "index": 0}
    yield {
        "type": "message_delta",
        "delta": {"stop_reason": chosen.stop, "stop_sequence": None},
        "usage": {"output_tokens": chosen.output_tokens, **chosen.last_usage},
    }
    yield {"type": "message_stop"}


def _delta(text: str) -> dict[str, Any]:
    return {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "text_delta", "text": text},
    }
