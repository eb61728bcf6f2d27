"""`--watch`: the process that shows the run as a page (`scripts/watch.py`), started and ended here.

It only reads the run, it has a low priority, and neither its death nor its slowness matters to the
run.  It ends with its supervisor, however that ends: its standard input is a pipe from here.
"""

from __future__ import annotations

import importlib.util
import secrets
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from actors.cli import UsageError
from actors.installation import ROOT, module_path

WEB_PACKAGES = ("starlette", "uvicorn")
LOOPBACK = "127.0.0.1"
TOKEN_BYTES = 32
CLOSE_S = 5.0
# Of the user's variables: where Python and its packages are.
VARIABLES = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "TMPDIR")


def check_packages() -> None:
    """Raise UsageError when the packages of the page are not installed."""
    missing = [name for name in WEB_PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            f"the page needs {' and '.join(missing)}: {sys.executable} -m pip install"
            f" {' '.join(missing)}"
        )


class PageServer:
    """The page's process; its socket is made here, so that the address is known at once."""

    def __init__(self, run_dir: Path, environ: Mapping[str, str], *, may_steer: bool) -> None:
        """Start the process; raise OSError where that is not possible."""
        token = secrets.token_urlsafe(TOKEN_BYTES)
        with socket.create_server((LOOPBACK, 0)) as listening:
            port = listening.getsockname()[1]
            descriptor = listening.fileno()
            arguments = [str(run_dir.resolve()), "--socket", str(descriptor)]
            self._process = subprocess.Popen(
                [
                    *(sys.executable, str(ROOT / "scripts" / "watch.py"), *arguments),
                    *(("--steer",) if may_steer else ()),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(descriptor,),
                start_new_session=True,
                env=_environment(environ),
            )
        self.address = f"http://{LOOPBACK}:{port}/#token={token}"
        if self._process.stdin is not None:
            self._process.stdin.write(f"{token}\n".encode())
            self._process.stdin.flush()

    @property
    def pids(self) -> tuple[int, ...]:
        """The process; its supervisor must not take it for an orphan."""
        return (self._process.pid,)

    def close(self, wait_s: float = CLOSE_S) -> None:
        """End the page, after a moment in which it shows the end of the run."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(wait_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the page's environment: it gets no key and no setting."""
    allowed = {name: environ[name] for name in VARIABLES if name in environ}
    return {**allowed, "PYTHONPATH": module_path(environ)}
