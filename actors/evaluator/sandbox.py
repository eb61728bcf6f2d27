"""What stands between a candidate and the machine.  Used by keepers, in the child, before it runs.

Level 1 is what this room claims: a scrubbed environment, resource limits, a session and process
group of its own, its whole tree killed together.  Where the machine gives namespaces (as root, or
where unprivileged user namespaces are allowed) a candidate also gets its own pid, network, ipc and
mount namespaces: it sees no other process and no network, the file system is read-only but for its
scratch folder, and the run directory looks empty.  These are welcome extras, not yet a level 2.

What it does not stop: system calls (there is no seccomp filter and no landlock), so a kernel bug
is reachable; reading any world-readable file, and what the user may read outside the hidden
directories; memory taken by many processes together or through shared mappings (the limit is one
process's private data; there is no cgroup); filling the disk slowly, file by file; burning all
cores while it runs; side channels.  Without namespaces also: the network, signals to other
processes of the same user, writing where the user may write, and leaving /dev/shm littered.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

from actors.evaluator import linux
from actors.evaluator.orders import Confinement, Ready
from protocol.values import DeviceKind

LEVEL = 1
OWN_ROOM = str(Path(__file__).resolve().parents[2])
SPACES = linux.NEW_NS | linux.NEW_PID | linux.NEW_NET | linux.NEW_IPC
OPEN_FILES = 1024
USER_PROCESSES = 4096
SHARED_MEMORY = "size=25%,mode=1777"
# CUDA's driver refuses to start (error 304) where it can't write to some of these.
DRIVER_NEEDS = ((), ("/proc",), ("/proc", "/dev"), ("/proc", "/dev", "/sys"))
MACHINE_WIDE = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs")

# What a child may know of the environment; everything else is dropped.
PASSED = frozenset(
    [
        "LANG",
        "LANGUAGE",
        "TZ",
        "LD_LIBRARY_PATH",
        "LIBRARY_PATH",
        "CPATH",
        "CC",
        "CXX",
        "CUDAHOSTCXX",
        "VIRTUAL_ENV",
        "TERM",
        "STARK_RUN",
        "PYTHONPATH",
        "PATH",
        "SPT_NOENV",
    ]
)
PASSED_PREFIXES = ("LC_", "CUDA_", "NVIDIA_", "OMP_", "GOMP_", "KMP_", "MKL_")


def unavailable(minimum: int) -> str | None:
    """Say why the sandbox can't give level `minimum`; None when it can."""
    if minimum <= LEVEL:
        return None
    return (
        f"sandbox level {minimum} is asked for, this evaluator gives level {LEVEL} "
        "(environment, limits, process group); use --min-sandbox 1"
    )


def environment(origin: dict[str, str], folder: str, **extra: str) -> dict[str, str]:
    """Return the whole environment of a child whose scratch is `folder`."""
    kept = {
        name: value
        for name, value in origin.items()
        if name in PASSED or name.startswith(PASSED_PREFIXES)
    }
    tools = str(Path(sys.executable).parent)  # ninja lies beside the interpreter
    kept.update(
        PATH=f"{tools}:{kept.get('PATH', os.defpath)}",
        # Ours first, so that the room is found from any working directory.
        PYTHONPATH=":".join(filter(None, [OWN_ROOM, kept.get("PYTHONPATH", "")])),
        HOME=folder,
        TMPDIR=folder,
        USER="candidate",
        LOGNAME="candidate",
        PYTHONDONTWRITEBYTECODE="1",
        PYTORCH_NVML_BASED_CUDA_CHECK="1",
        TORCH_EXTENSIONS_DIR=f"{folder}/extensions",
        TRITON_CACHE_DIR=f"{folder}/triton",
        TORCHINDUCTOR_CACHE_DIR=f"{folder}/inductor",
        CUDA_CACHE_PATH=f"{folder}/cuda",
        **extra,
    )
    return kept


def separate(ready: Ready) -> None:
    """In a keeper: leave our namespaces; the next fork is the first process of the new ones."""
    uid, gid = os.getuid(), os.getgid()
    linux.unshare(SPACES | (linux.NEW_USER if ready.user else 0))
    if ready.user:
        linux.map_user(uid, gid)


def furnish(confinement: Confinement, ready: Ready) -> bool:
    """In the first process of new namespaces: mount what it may see; say if processes are capped.

    The order matters: the scratch folder is opened before what lies above it is hidden.
    """
    linux.mount("none", "/", "none", linux.MS_REC | linux.MS_PRIVATE)
    careful = linux.MS_NOSUID | linux.MS_NODEV
    linux.mount("proc", "/proc", "proc", careful | linux.MS_NOEXEC)
    capped = _cap_processes(confinement.processes)
    scratch = os.open(confinement.folder, os.O_PATH | os.O_DIRECTORY)
    for hidden in confinement.hide:
        linux.mount("tmpfs", hidden, "tmpfs", careful, "size=1m,mode=755")
    Path(confinement.folder).mkdir(parents=True, exist_ok=True)
    linux.mount(f"/proc/self/fd/{scratch}", confinement.folder, "none", linux.MS_BIND)
    os.close(scratch)
    if ready.read_only:
        linux.set_read_only("/", read_only=True, recursive=True)
        for path in (*ready.writable, confinement.folder):
            linux.set_read_only(path, read_only=False, recursive=False)
        if "/proc" in ready.writable:
            _guard_proc()
    if Path("/dev/shm").is_dir():  # noqa: S108
        linux.mount("tmpfs", "/dev/shm", "tmpfs", careful, SHARED_MEMORY)  # noqa: S108
    return capped


def _guard_proc() -> None:
    """Keep what in /proc belongs to the whole machine read-only: the candidate may be root."""
    for path in filter(os.path.exists, MACHINE_WIDE):
        linux.mount(path, path, "none", linux.MS_BIND | linux.MS_REC)
        linux.set_read_only(path, read_only=True, recursive=True)


def _cap_processes(limit: int | None) -> bool:
    # Since Linux 6.14 this figure belongs to the pid namespace; before, to the whole machine,
    # where the write would hurt everybody.
    release = tuple(int(part) for part in os.uname().release.split(".")[:2] if part.isdigit())
    if limit is None or release < (6, 14):
        return False
    try:
        Path("/proc/sys/kernel/pid_max").write_text(str(limit), encoding="ascii")
    except OSError:
        return False
    return True


def confine(confinement: Confinement) -> None:
    """In the process that will run candidate code, last of all: limits, environment, privileges."""
    limits = [
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_DATA, confinement.data_bytes),
        (resource.RLIMIT_FSIZE, confinement.file_bytes),
    ]
    if confinement.processes is not None and os.getuid():
        # Counted with all that the user runs, so no tight cap; root is exempt (`_cap_processes`).
        limits.append((resource.RLIMIT_NPROC, confinement.processes + USER_PROCESSES))
    for which, wanted in limits:
        if wanted is not None:
            hard = resource.getrlimit(which)[1]
            least = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(which, (least, least))
    os.environ.clear()
    os.environ.update(confinement.environment)
    os.chdir(confinement.folder)
    if confinement.isolated:
        linux.drop_capabilities()


def probe(device: DeviceKind) -> Ready:
    """Try what isolation the machine gives, the strictest first, in throwaway children."""
    # A user namespace that nobody made with privileges breaks CUDA (error 304).
    for user in (False, True) if device == "cpu" else (False,):
        for writable in DRIVER_NEEDS if device == "cuda" else ((),):
            ready = Ready(namespaces=True, user=user, read_only=True, writable=writable)
            if _works(ready, device):
                return ready
        ready = Ready(namespaces=True, user=user)
        if _works(ready, device):
            return ready
    return Ready()


def _works(ready: Ready, device: DeviceKind) -> bool:
    pid = os.fork()
    if not pid:
        try:
            separate(ready)
            inner = os.fork()
            if not inner:
                furnish(Confinement(folder=str(Path.cwd()), environment={}), ready)
                os._exit(0 if device == "cpu" else linux.cuda_error())
            os._exit(os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1]) & 127)
        except OSError:
            os._exit(1)
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0
