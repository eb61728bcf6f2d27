"""`python scripts/doctor.py`: print what this machine has for STARK, and what is missing.

Exit status 0 when the main job can run here, 1 when a part that it needs is missing.  Of an API key
it prints only whether one is set.
"""

from __future__ import annotations

import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file, from anywhere

from actors.cli import OneLineParser, exit_when_reader_closes
from actors.commands import typed_command, with_typed_commands
from actors.exit_status import ExitStatus
from actors.installation import is_checkout
from protocol.api_key import api_key_variable

COMMAND_TIMEOUT_S = 60.0
SYNCS = 20
MIN_GIB = 2.0
# The dependencies of pyproject.toml; ninja has a line of its own.
NEEDED = (
    "torch",
    "pyzmq",
    "msgspec",
    "structlog",
    "rich",
    "setproctitle",
    "anthropic",
    "httpx2",
    "jinja2",
    "sortedcontainers",
    "nvidia-ml-py",
    "setuptools",
)


@dataclass(frozen=True)
class MachineCheck:
    """One line of the output; `missing` says what to do."""

    what: str
    value: str
    missing: str = ""
    needed: bool = True


def python() -> MachineCheck:
    todo = "" if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed"
    return MachineCheck("python", f"{platform.python_version()} at {sys.executable}", todo)


def system() -> MachineCheck:
    todo = "" if sys.platform == "linux" else "Linux is needed (pidfd, namespaces)"
    return MachineCheck(
        "system", f"{platform.system()} {platform.release()}, {os.cpu_count()} CPUs", todo
    )


def packages() -> MachineCheck:
    versions, absent = [], []
    for name in NEEDED:
        try:
            versions.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            absent.append(name)
    wanted = "-e ." if is_checkout() else " ".join(absent)
    todo = f"missing: {', '.join(absent)}; run: pip install {wanted}" if absent else ""
    return MachineCheck("packages", ", ".join(versions) or "none", todo)


def compiler() -> MachineCheck:
    name = os.environ.get("CXX") or next((c for c in ("g++", "clang++") if shutil.which(c)), "")
    path = shutil.which(name) if name else None
    if path is None:
        return MachineCheck("C++ compiler", name or "none", "install g++ (Debian: apt install g++)")
    return MachineCheck("C++ compiler", f"{first_line([path, '--version'])} at {path}")


def ninja() -> MachineCheck:
    path = shutil.which("ninja") or shutil.which("ninja", path=str(Path(sys.executable).parent))
    todo = "" if path else "torch builds extensions with it; run: pip install ninja"
    return MachineCheck(
        "ninja", f"{first_line([path, '--version'])} at {path}" if path else "none", todo
    )


def cuda() -> MachineCheck:
    gpus = first_line(
        [
            sys.executable,
            "-c",
            "import torch; n = torch.cuda.device_count(); print(', '.join("
            "torch.cuda.get_device_name(i) for i in range(n)) or 'no GPU that torch can use')",
        ]
    )
    nvcc = shutil.which("nvcc")
    has_gpu = bool(gpus) and not gpus.startswith("no ")
    todo = "nvcc is not on PATH: CUDA candidates can't be built" if has_gpu and not nvcc else ""
    return MachineCheck(
        "CUDA", f"{gpus or 'torch did not answer'}; nvcc {nvcc or 'none'}", todo, needed=False
    )


def key() -> MachineCheck:
    is_set = bool(api_key_variable(os.environ))
    todo = "" if is_set else "the rule book (--model recipes) is used instead of a model"
    return MachineCheck("API key", "set" if is_set else "not set", todo, needed=False)


def sandbox() -> MachineCheck:
    tools = [name for name in ("bwrap", "unshare", "setpriv") if shutil.which(name)]
    user_namespace = not first_line(["unshare", "--user", "--pid", "--fork", "true"], errors=True)
    parts = [*tools, "namespaces allowed" if user_namespace else "no namespaces"]
    todo = "" if user_namespace else "without namespaces the sandbox reaches level 2 at most"
    return MachineCheck("sandbox", ", ".join(parts), todo, needed=False)


def disk() -> MachineCheck:
    free_gib = shutil.disk_usage(Path.cwd()).free / 2**30
    todo = f"less than {MIN_GIB:.0f} GiB free for builds and runs" if free_gib < MIN_GIB else ""
    return MachineCheck("disk here", f"{free_gib:.1f} GiB free", todo)


def fsync() -> MachineCheck:
    times_ms = []
    try:
        with tempfile.NamedTemporaryFile(dir=Path.cwd()) as file:
            for _ in range(SYNCS):
                file.write(b"x" * 4096)
                file.flush()
                began = time.perf_counter()
                os.fsync(file.fileno())
                times_ms.append((time.perf_counter() - began) * 1000)
    except OSError as error:
        return MachineCheck(
            "fsync here", "can't write", f"{error.strerror}: run where you may write"
        )
    median = statistics.median(times_ms)
    todo = "slow: every result waits for it; use a local disk" if median > 20 else ""
    return MachineCheck("fsync here", f"{median:.2f} ms (median of {SYNCS})", todo, needed=False)


CHECKS: tuple[Callable[[], MachineCheck], ...] = (
    *(python, system, packages, compiler, ninja),
    *(cuda, key, sandbox, disk, fsync),
)


def first_line(command: list[str], *, errors: bool = False) -> str:
    """Return the first line that a command prints (on stderr, if `errors`); "" on none."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error) if errors else ""
    text = done.stderr if errors else done.stdout
    return text.strip().splitlines()[0] if text.strip() else ""


def main() -> int:
    """Print all results; return 1 when a needed part is missing."""
    OneLineParser(
        prog=typed_command("doctor"), description=with_typed_commands(__doc__)
    ).parse_args()
    exit_when_reader_closes()
    missing_count = 0
    for check in CHECKS:
        result = check()
        mark = "ok" if not result.missing else "MISSING" if result.needed else "note"
        missing_count += mark == "MISSING"
        print(f"{mark:8}{result.what:14}{result.value}")
        if result.missing:
            print(f"{'':22}-> {result.missing}")
    print("something needed is missing" if missing_count else "ready")
    return ExitStatus.NEGATIVE if missing_count else ExitStatus.DONE


if __name__ == "__main__":
    sys.exit(main())
