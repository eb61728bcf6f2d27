"""The process of `scripts/watch.py`: its socket, its token, the web server, and its end.

It reads runs and never takes part in them: it may start before a run, die, and start again.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import os
import signal
import socket
import ssl
import stat
import sys
import tempfile
import threading
import time
import webbrowser
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import uvicorn

from actors.cli import UsageError
from actors.supervisor.page.page_files import page_files
from actors.supervisor.reporting.feed.run_feed import RunFeed
from actors.watch.access import LOOPBACK_NAMES, AccessControl, AccessPolicy, new_token
from actors.watch.application import WatchApplication
from actors.watch.connection import TimedConnection
from actors.watch.served_run import ServedRun
from protocol.values import Value

LOOPBACK = "127.0.0.1"
MAX_CONNECTIONS = 256
MAX_HEADER_BYTES = 16 * 1024
SHUTDOWN_S = 2
LAST_LOOK_S = 1.0  # open pages see the end of the run before the server ends
NICENESS = 10
MIN_TOKEN_CHARS = 32
BACKLOG = 128


class ServerOptions(Value, frozen=True, kw_only=True):
    """What the command line asks for."""

    runs: tuple[Path, ...]
    host: str = LOOPBACK
    port: int = 0  # 0: a free one
    may_steer: bool = False
    certificate: Path | None = None
    key: Path | None = None

    @property
    def is_tls(self) -> bool:
        """Whether the page is served over TLS."""
        return self.certificate is not None


class WatchServer(uvicorn.Server):
    """uvicorn, but its streams end when it is asked to end: it would wait for them."""

    def __init__(self, config: uvicorn.Config, end_streams: Callable[[], None]) -> None:
        super().__init__(config)
        self._end_streams = end_streams

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End at a signal."""
        self.end()
        super().handle_exit(sig, frame)

    def end(self) -> None:
        """End soon; safe to call from another thread."""
        self._end_streams()
        self.should_exit = True


def check_options(options: ServerOptions) -> None:
    """Raise UsageError where the page can't or must not be served like that."""
    if (options.certificate is None) != (options.key is None):
        raise UsageError("--tls-cert and --tls-key go together: name both files")
    if options.host in ("0.0.0.0", "::", ""):  # noqa: S104  # refused
        raise UsageError(
            f"--host {options.host}: name one address of this machine, the one that the page is"
            " opened by"
        )
    if not is_loopback(options.host) and not options.is_tls:
        raise UsageError(
            f"--host {options.host} is reached from other machines: give --tls-cert and --tls-key,"
            " or leave out --host and forward the port (ssh -L)"
        )
    if options.certificate is not None and options.key is not None:
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(options.certificate, options.key)
        except OSError as error:
            reason = error.strerror or str(error)
            raise UsageError(f"--tls-cert, --tls-key can't be used: {reason}") from error


def is_loopback(host: str) -> bool:
    """Whether only processes of this machine reach a host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listening_socket(options: ServerOptions) -> socket.socket:
    """Return the socket of the page; raise UsageError with one line when it can't be had."""
    try:
        family = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server(
            (options.host, options.port), family=family, backlog=BACKLOG, reuse_port=False
        )
    except OSError as error:
        address = f"{options.host} port {options.port}"
        raise UsageError(f"can't listen on {address}: {error.strerror}") from error


def stored_token(path: Path) -> str:
    """Return the token in a file that only its owner can read; make the file if there is none."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _read_token(path)
    except OSError as error:
        raise UsageError(f"--token-file {path} can't be made: {error.strerror}") from error
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        token = new_token()
        file.write(f"{token}\n")
    return token


def _read_token(path: Path) -> str:
    try:
        mode = path.stat().st_mode
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeError) as error:
        raise UsageError(f"--token-file {path} can't be read: {error}") from error
    if not stat.S_ISREG(mode) or mode & 0o077:
        raise UsageError(f"--token-file {path}: other users can read it: chmod 600 {path}")
    if len(token) < MIN_TOKEN_CHARS or not token.replace("-", "").replace("_", "").isalnum():
        raise UsageError(f"--token-file {path} holds no token: remove it, and a new one is made")
    return token


def run_identifier(run_dir: Path) -> str:
    """Return the name of a run in addresses: the same at each start, and not its path."""
    path = os.fsencode(run_dir.resolve())
    return hashlib.sha256(b"watch:" + path).hexdigest()[:12]


def page_address(options: ServerOptions, listening: socket.socket, token: str) -> str:
    """Return the address to open; its fragment, which browsers do not send, holds the token."""
    return f"{_origin(options, listening)}/#token={token}"


def _origin(options: ServerOptions, listening: socket.socket) -> str:
    host = f"[{options.host}]" if ":" in options.host else options.host
    scheme = "https" if options.is_tls else "http"
    return f"{scheme}://{host}:{listening.getsockname()[1]}"


def watch_server(options: ServerOptions, listening: socket.socket, token: str) -> WatchServer:
    """Return the server, ready to `serve`."""
    names = {options.host, *(LOOPBACK_NAMES if is_loopback(options.host) else ())}
    policy = AccessPolicy(
        token=token,
        names=names,
        port=listening.getsockname()[1],
        is_tls=options.is_tls,
    )
    application = WatchApplication(
        runs=_served_runs(options.runs),
        files=page_files(),
        policy=policy,
        may_steer=options.may_steer,
    )
    config = uvicorn.Config(
        AccessControl(application.starlette(), policy),
        http=TimedConnection,
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MAX_CONNECTIONS,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        timeout_graceful_shutdown=SHUTDOWN_S,
        ssl_certfile=options.certificate,
        ssl_keyfile=options.key,
    )
    return WatchServer(config, application.end_streams)


def _served_runs(folders: Iterable[Path]) -> dict[str, ServedRun]:
    named = {run_identifier(folder): folder for folder in folders}
    return {
        identifier: ServedRun(RunFeed(folder, identifier)) for identifier, folder in named.items()
    }


def serve(server: WatchServer, listening: socket.socket) -> None:
    """Serve until a signal, or `server.end`."""
    try:
        asyncio.run(server.serve(sockets=[listening]))
    except KeyboardInterrupt:
        return  # uvicorn raises the signal again after its end


def serve_for_supervisor(options: ServerOptions, descriptor: int) -> None:
    """Serve on a supervisor's socket until that supervisor ends.

    Standard input is its pipe: first a line with the token, which so is in no command line and no
    environment, then nothing until it ends.
    """
    os.nice(NICENESS)  # before any measurement the page waits
    token = sys.stdin.readline().strip()
    with socket.socket(fileno=descriptor) as listening:
        server = watch_server(options, listening, token)
        for number in (signal.SIGINT, signal.SIGHUP):  # the supervisor's; it ends the page, too
            signal.signal(number, signal.SIG_IGN)
        threading.Thread(target=_end_with_supervisor, args=(server,), daemon=True).start()
        serve(server, listening)


def _end_with_supervisor(server: WatchServer) -> None:
    while sys.stdin.read(1):
        pass
    time.sleep(LAST_LOOK_S)
    server.end()


@contextmanager
def opened_in_browser(address: str) -> Iterator[None]:
    """Open the page in the user's browser, by a file that forwards to it.

    A browser's command line can be read by all users of the machine, and the address has the token.
    """
    with tempfile.TemporaryDirectory(prefix="stark-watch-") as folder:
        path = Path(folder) / "open.html"
        path.write_text(
            '<!doctype html><meta name="referrer" content="no-referrer">'
            f'<meta http-equiv="refresh" content="0;url={address}">',
            encoding="utf-8",
        )
        webbrowser.open(path.as_uri())
        yield
