"""Finds the machine's sandbox level: throwaway children build a sandbox and try to break out.

A level counts only what held in the trial.  The probe's child builds its sandbox as a candidate's
child does, and then attempts what the sandbox must refuse.  The zygote runs the probe once, and the
command runs it before it starts anything.
"""

from __future__ import annotations

import os
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NoReturn

import msgspec

from actors.evaluator.ipc.orders import Confinement, ZygoteReady
from actors.evaluator.sandbox import cgroup, landlock, linux, paths, sandbox, seccomp
from protocol.values import DeviceKind

# CUDA's driver refuses to start (error 304) where it can't write to some of these.
DRIVER_NEEDS = ((), ("/proc",), ("/proc", "/dev"), ("/proc", "/dev", "/sys"))
MAX_PROBE_CHARS = 1 << 12
MIB = 1 << 20
GROUP_BYTES, GROUP_PROCESSES = 64 * MIB, 6
PROBE_FILES, TRACING, NETWORK, PROCESSES, SECRETS, SCRATCH, GROUP, ROOT = (
    *("files", "tracing", "network", "processes", "secrets", "scratch", "group", "root"),
)
SECOND = {PROBE_FILES, TRACING, NETWORK, SECRETS, SCRATCH}
THIRD = SECOND | {PROCESSES, ROOT}
LOCAL = "127.0.0.1"
ProbeAttempts = dict[str, Callable[[], bool]]


def probe_sandbox(device: DeviceKind, folder: Path, private: tuple[str, ...] = ()) -> ZygoteReady:
    """Return the strictest sandbox in which the device works.

    `folder` is writable; `private` are folders that must look empty to a child.
    """
    return _probe(_working_groups(), device, folder, private)


@contextmanager
def probing(
    device: DeviceKind, folder: Path, private: tuple[str, ...]
) -> Iterator[Callable[[], ZygoteReady]]:
    """Do the same beside the block, in a process of its own; the function waits for the result."""
    groups = _working_groups()
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.write(write, msgspec.json.encode(_probe(groups, device, folder, private)))
        finally:
            os._exit(0)
    os.close(write)

    def found() -> ZygoteReady:
        with os.fdopen(read, "rb") as report:
            return msgspec.json.decode(report.read(), type=ZygoteReady)

    try:
        yield found
    finally:
        os.waitpid(pid, 0)


def _probe(
    groups: tuple[str, ...], device: DeviceKind, folder: Path, private: tuple[str, ...]
) -> ZygoteReady:
    for ready in _sandboxes_to_try(device):
        held = _try(msgspec.structs.replace(ready, groups=groups), device, folder, private)
        if held is not None:
            level = _level(ready, groups, held)
            return msgspec.structs.replace(ready, groups=groups, level=level)
    return ZygoteReady(groups=groups)


def unavailable_reason(minimum: int, device: DeviceKind) -> str | None:
    """Return why this machine can't give level `minimum` to this user; None when it can."""
    if minimum <= 1:
        return None
    with tempfile.TemporaryDirectory() as folder:
        ready = probe_sandbox(device, Path(folder), paths.hidden_paths([*paths.home_folders()]))
    cgroup.remove_own_groups(ready.groups)
    return sandbox.refusal(minimum, ready.level)


def _working_groups() -> tuple[str, ...]:
    """Return this process's control groups; () where a child's group can't be made in them."""
    groups = cgroup.make_own_groups()
    try:
        cgroup.ChildCgroup(groups, GROUP_BYTES, GROUP_PROCESSES).close()
    except OSError:
        cgroup.remove_own_groups(groups)
        return ()
    return groups


def _sandboxes_to_try(device: DeviceKind) -> Iterator[ZygoteReady]:
    """Yield the sandboxes to try, the strictest first."""
    filtered = seccomp.is_supported()
    locks = (True, False) if landlock.abi() >= landlock.MIN_ABI else (False,)
    spaces = []
    # A user namespace that was made without privileges breaks CUDA (error 304).
    for user in (False, True) if device == "cpu" else (False,):
        for writable in DRIVER_NEEDS if device == "cuda" else ((),):
            spaces.append(
                ZygoteReady(namespaces=True, user=user, read_only=True, writable=writable)
            )
    spaces += [ZygoteReady(namespaces=True, user=user) for user in (False, True) if device == "cpu"]
    for space in (*spaces, ZygoteReady()):
        for lock in locks:
            for calls in (True, False) if filtered else (False,):
                yield msgspec.structs.replace(space, landlock=lock, seccomp=calls)


def _level(ready: ZygoteReady, groups: tuple[str, ...], held: set[str]) -> int:
    if not ready.seccomp:
        return 1
    if ready.namespaces and ready.read_only and groups and held >= THIRD | {GROUP}:
        return 3
    return 2 if ready.landlock and held >= SECOND else 1


def _try(
    ready: ZygoteReady, device: DeviceKind, folder: Path, private: tuple[str, ...]
) -> set[str] | None:
    """Return what such a sandbox refused; None where it can't be built or the device fails."""
    shared = [Path(path) for path in paths.SHARED_FOLDERS]
    inside = folder / "inside"
    inside.mkdir(exist_ok=True)
    outside = folder / "outside"
    outside.write_text("secret", encoding="ascii")
    confinement = Confinement(
        folder=str(inside),
        hide=tuple(sorted({*private, *paths.hidden_paths(shared)})),
        keep=paths.required_paths(),
        environment=sandbox.NO_MPS,
    )
    read, write = os.pipe()
    with socket.create_server((LOCAL, 0)) as server:
        attempts = _attempts(outside, server.getsockname()[1], private)
        pid = os.fork()
        if not pid:
            _probe_outer(ready, device, confinement, attempts, write)
        os.close(write)
        report = b""
        while more := os.read(read, MAX_PROBE_CHARS):
            report += more
        os.close(read)
        os.waitpid(pid, 0)
    outside.unlink()
    inside.rmdir()
    return set(report.decode().split()) - {"made"} if report.startswith(b"made") else None


def _probe_outer(
    ready: ZygoteReady,
    device: DeviceKind,
    confinement: Confinement,
    attempts: ProbeAttempts,
    write: int,
) -> NoReturn:
    """Be a throwaway init process: fork the probe's child, report whether its memory limit held."""
    try:
        group = cgroup.ChildCgroup(ready.groups, GROUP_BYTES, GROUP_PROCESSES)
        if ready.namespaces:
            sandbox.unshare_namespaces(ready)
        inner = os.fork()
        if not inner:
            _probe_inner(ready, device, confinement, attempts, write, group)
        status = os.waitpid(inner, 0)[1]
        if ready.groups and os.WIFSIGNALED(status) and group.ran_out_of_memory():
            os.write(write, f" {GROUP}".encode())
        group.close()
    except OSError:
        os._exit(1)
    finally:
        os._exit(0)


def _probe_inner(
    ready: ZygoteReady,
    device: DeviceKind,
    confinement: Confinement,
    attempts: ProbeAttempts,
    write: int,
    group: cgroup.ChildCgroup,
) -> NoReturn:
    """Act as a candidate: build the sandbox, start the device, try to break out, use up memory."""
    try:
        if ready.namespaces:
            sandbox.mount_filesystem(confinement, ready, device)
        sandbox.confine(confinement, ready, device)
        if device == "cuda" and linux.cuda_error():
            os._exit(1)
        held = ["made", *(name for name, attempt in attempts.items() if attempt())]
        os.write(write, " ".join(held).encode())
        if ready.groups:
            group.enter()
            if _bounded(GROUP_PROCESSES):
                bytearray(b"x") * (2 * GROUP_BYTES)
    except OSError:
        os._exit(1)
    finally:
        os._exit(0)


def _attempts(outside: Path, port: int, private: tuple[str, ...]) -> ProbeAttempts:
    """Return name -> attempt to break out; an attempt returns whether the sandbox held."""
    prober = os.getpid()
    known = [*map(Path, paths.required_paths()), outside.parent]
    secrets = (outside, Path("/proc") / str(prober) / "environ")
    homes = [Path(path) for path in private if path not in paths.SHARED_FOLDERS]
    return {
        PROBE_FILES: lambda: _refused(lambda: os.close(os.open(outside, os.O_WRONLY))),
        SECRETS: lambda: (
            all(_refused(path.read_bytes) for path in secrets)
            and all(_is_bare(home, known) for home in homes)
        ),
        TRACING: _is_untraced,
        NETWORK: lambda: _refused(lambda: socket.create_connection((LOCAL, port), 1).close()),
        PROCESSES: lambda: _refused(lambda: os.kill(prober, 0)),
        SCRATCH: lambda: not _refused(Path("own").touch) and not _refused(Path("own").unlink),
        ROOT: lambda: all(_refused(partial(_temporary, path)) for path in ("/", "/usr", "/etc")),
    }


def _refused(act: Callable[[], object]) -> bool:
    try:
        act()
    except OSError:
        return True
    return False


def _is_bare(home: Path, known: list[Path]) -> bool:
    """Whether a home shows nothing except the folders on the way to the `known` paths."""
    try:
        found = list(home.iterdir())
    except OSError:
        return True
    return all(any(path.is_relative_to(entry) for path in known) for entry in found)


def _is_untraced() -> bool:
    """Whether the sandbox refuses to let this process be traced as by a debugger."""
    return linux.request_tracing() != 0


def _temporary(folder: str) -> None:
    os.close(os.open(folder, os.O_TMPFILE | os.O_WRONLY, 0o600))


def _bounded(limit: int) -> bool:
    """Whether no more than `limit` processes can be started."""
    started: list[int] = []
    bounded = False
    try:
        for _ in range(limit + 1):
            pid = os.fork()
            if not pid:
                signal.pause()
                os._exit(0)
            started.append(pid)
    except OSError:
        bounded = True
    for pid in started:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return bounded
