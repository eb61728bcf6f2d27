"""`python scripts/watch.py RUN [RUN…]`: the page of one run or of several, live or ended.

It prints the address to open, which holds a token; it only reads, unless --steer lets the page ask
things of the run.  It may start before a run begins, end, and start again at any time.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[1]
MAX_PORT = 65_535

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def main(arguments: list[str] | None = None) -> int:
    """Serve the page until a signal; return the exit status."""
    sys.path.insert(0, str(ROOT))  # works from a checkout that was never installed
    from actors.startup_packages import end_without_packages

    end_without_packages()
    from actors.cli import UsageError
    from actors.exit_status import ExitStatus
    from actors.supervisor.page_server import check_packages

    parsed = parser().parse_args(arguments)
    try:
        check_packages()
        return serve_page(parsed)
    except UsageError as error:
        print(f"watch: {error}", file=sys.stderr)
        return ExitStatus.USAGE


def parser() -> ArgumentParser:
    """Return the parser of the command line."""
    from argparse import SUPPRESS

    from actors.cli import OneLineParser
    from actors.commands import typed_command, with_typed_commands

    made = OneLineParser(prog=typed_command("watch"), description=with_typed_commands(__doc__))
    made.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="a run folder")
    made.add_argument(
        "--port", type=_port, default=0, metavar="N", help="the port (default: a free one)"
    )
    made.add_argument(
        "--host", default="127.0.0.1", help="another address of this machine; it needs TLS"
    )
    made.add_argument(
        "--steer",
        action="store_true",
        help="let the page send directives to the run (docs/watch.md)",
    )
    made.add_argument("--open", action="store_true", help="open the page in the browser")
    made.add_argument("--tls-cert", type=Path, metavar="FILE", help="certificate chain, PEM")
    made.add_argument("--tls-key", type=Path, metavar="FILE", help="its private key, PEM")
    made.add_argument("--socket", type=int, default=None, help=SUPPRESS)  # of a supervisor
    made.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="keep the token in this file, so that open pages outlive a restart",
    )
    return made


def _port(text: str) -> int:
    from argparse import ArgumentTypeError

    if not (text.isascii() and text.isdigit() and int(text) <= MAX_PORT):
        raise ArgumentTypeError(f"expected a port, 0 to {MAX_PORT}, got {text!r}")
    return int(text)


def serve_page(parsed: Namespace) -> int:
    """Listen, say where, and serve."""
    from actors.watch import access, server

    options = server.ServerOptions(
        runs=tuple(parsed.runs),
        host=parsed.host,
        port=parsed.port,
        may_steer=parsed.steer,
        certificate=parsed.tls_cert,
        key=parsed.tls_key,
    )
    if parsed.socket is not None:
        server.serve_for_supervisor(options, parsed.socket)
        return 0
    server.check_options(options)
    token = server.stored_token(parsed.token_file) if parsed.token_file else access.new_token()
    with ExitStack() as stack:
        listening = stack.enter_context(server.listening_socket(options))
        address = server.page_address(options, listening, token)
        for run in options.runs:
            if not run.is_dir():
                print(f"watch: {run} is not there yet: the page shows it once it begins")
        print(f"watch: {address}", flush=True)
        if parsed.open:
            stack.enter_context(server.opened_in_browser(address))
        server.serve(server.watch_server(options, listening, token), listening)
    return 0


if __name__ == "__main__":
    sys.exit(main())
