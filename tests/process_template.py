"""A process that has imported what actors import; the actors that tests start are forks of it.

Fault tests start hundreds of actors, and the imports of one cost 0.4 s of a processor.  A fork has
them already, and then runs its module as `python -m MODULE` or `python FILE` does.  So do tests of
one line that a command prints.  Tests of supervisors start their processes in the ordinary way.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import IO

TOP = Path(__file__).parents[1]
MAIN_MODULES = (
    "actors.coordinator.__main__",
    "actors.agents.__main__",
    "scripts.faults.cheap_evaluator",
)
LATE_MODULES = (
    "actors.agents.models.replay_model",
    "actors.agents.models.script_model",
    "actors.evaluator.judge_cli",
)
MAX_REQUEST = 1 << 17
PID, STATUS = struct.Struct("q"), struct.Struct("i")


class TemplateProcess:
    """A fork of the template, to be used as a `subprocess.Popen`."""

    def __init__(self, status: int) -> None:
        """`status`: the pipe from the process's parent, which sends its pid and exit status."""
        self._status = status
        (self.pid,) = PID.unpack(os.read(status, PID.size))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit status as `subprocess` does; None while the process lives."""
        if self.returncode is None and select.select([self._status], [], [], 0)[0]:
            return self.wait()
        return self.returncode

    def wait(self) -> int:
        """Wait for the end of the process; return its exit status."""
        if self.returncode is None:
            (status,) = STATUS.unpack(os.read(self._status, STATUS.size))
            os.close(self._status)
            self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def kill(self) -> None:
        """Kill the process, unless it is known to have ended."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


class ProcessTemplate:
    """The test session's end of the template; several threads may use it."""

    def __init__(self) -> None:
        self._socket, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(end.fileno())],
            pass_fds=[end.fileno()],
            env={**os.environ, "PYTHONPATH": str(TOP)},
        )
        end.close()
        self._lock = threading.Lock()
        atexit.register(self.close)

    def start(
        self, argv: Sequence[str], cwd: Path, output: IO[bytes], environment: Mapping[str, str]
    ) -> TemplateProcess:
        """Start `python ARGV...` with this environment; `output` gets stdout and stderr."""
        mine, theirs = os.pipe()
        request = json.dumps([list(argv), str(cwd), dict(environment)]).encode()
        with self._lock:
            socket.send_fds(self._socket, [request], [output.fileno(), theirs])
        os.close(theirs)
        return TemplateProcess(mine)

    def close(self) -> None:
        """End the template; it ends by itself, too, when this process is gone."""
        self._socket.close()
        self._process.wait()


@lru_cache(maxsize=1)
def _template() -> ProcessTemplate:
    return ProcessTemplate()


_FIRST = threading.Lock()


def start_process(
    argv: Sequence[str], cwd: Path, output: IO[bytes], environment: Mapping[str, str] | None = None
) -> TemplateProcess:
    """Start `python ARGV...` as a fork of this session's template."""
    with _FIRST:
        template = _template()
    return template.start(argv, cwd, output, os.environ if environment is None else environment)


def run_process(
    argv: Sequence[str], cwd: Path, environment: Mapping[str, str] | None = None
) -> tuple[int, list[str]]:
    """Run `python ARGV...` as such a fork; return its exit status and the lines of its output."""
    with tempfile.TemporaryFile() as output:
        status = start_process(argv, cwd, output, environment).wait()
        output.seek(0)
        return status, output.read().decode().splitlines()


# --- the template --------------------------------------------------------------------------------


def next_process(requests: socket.socket) -> list[str] | None:
    """Serve until the session ends; in each forked process return its command line."""
    while True:
        data, descriptors, _flags, _address = socket.recv_fds(requests, MAX_REQUEST, 2)
        if not data:
            return None
        _reap()
        output, status = descriptors
        if os.fork() == 0:
            pid = os.fork()
            if pid == 0:
                os.close(status)
                requests.close()
                return _become(json.loads(data), output)
            _report(pid, status)
        for descriptor in descriptors:
            os.close(descriptor)


def _reap() -> None:
    """Collect the watching parents whose processes have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def _report(pid: int, status: int) -> None:
    """Be the parent of one process: send its pid and its exit status, and end."""
    os.write(status, PID.pack(pid))
    ended = os.waitpid(pid, 0)[1]
    os.write(status, STATUS.pack(ended))
    os._exit(0)


def _become(request: list, output: int) -> list[str]:
    argv, cwd, environment = request
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.close(null)
    os.close(output)
    return argv


def run_command(argv: list[str]) -> None:
    """Do what `python ARGV...` does."""
    if argv[0] == "-m":
        sys.argv = argv[1:]
        sys.path[0] = str(Path.cwd())
        runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = argv
        sys.path[0] = str(Path(argv[0]).parent)
        runpy.run_path(argv[0], run_name="__main__")


def main() -> None:
    """Import, serve, and in each fork run its command to the end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the test session
    for name in (*MAIN_MODULES, *LATE_MODULES):
        importlib.import_module(name)
    for name in MAIN_MODULES:
        del sys.modules[name]  # a fork runs it again, as its main module
    gc.collect()
    gc.freeze()
    argv = next_process(socket.socket(fileno=int(sys.argv[1])))
    if argv is not None:
        run_command(argv)


if __name__ == "__main__":
    main()
