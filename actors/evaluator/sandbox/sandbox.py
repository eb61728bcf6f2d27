"""The sandbox around a candidate.  The init process and the child make it before other code runs.

Levels (`docs/evaluation-laws.md`, law 13).  A level counts only where all of its parts were tried
and held (`sandbox/probe.py`):

1  a scrubbed environment, resource limits, no capabilities, a session of its own, its whole tree
   killed together, and those parts of the higher levels that the machine has.
2  landlock (reads the system and Python, writes its scratch folder and the card's nodes, no TCP),
   a seccomp deny-list (no ptrace, no connect, no mounts, no namespaces, no bpf …), and the limits.
3  pid, net, ipc and mount namespaces (and a user namespace, where the judge is not root): no other
   process, no network, a read-only root, a private /tmp, /dev, /dev/shm and /run, home and run
   directory empty except for what Python needs; the deny-list; and a control group that limits
   memory and processes together.  The isolation is bubblewrap's, made by this code: a zygote forks
   its children warm, and bubblewrap can't be put around a fork.  Whether bwrap is installed changes
   nothing.  Landlock is added where the kernel has it.

What it does not stop: bugs of the kernel in the calls that are left; the GPU's driver, which needs
its ioctls; reading /usr, /etc, /opt, /sys, and what Python's own folders hold; seeing that a file
exists (landlock hides contents, not names); filling the disk slowly, file by file, in scratch;
using all cores; side channels; patching our own runner in its own process.  Where the judge is
root, the candidate is root without capabilities: it owns root's files, which are read-only.  At
level 2 also: memory of many processes together, seeing other processes' names, slowing them down by
affinity or priority, and files left in /dev/shm.  At level 1: nearly everything.
"""

from __future__ import annotations

import os
import re
import resource
import sys
from pathlib import Path

from actors.evaluator.ipc.orders import Confinement, ZygoteReady
from actors.evaluator.sandbox import landlock, linux, paths, seccomp
from actors.installation import module_path

SPACES = linux.NEW_NS | linux.NEW_PID | linux.NEW_NET | linux.NEW_IPC
CAREFUL = linux.MS_NOSUID | linux.MS_NODEV
# Open files of a candidate's process at most, and this share of the judge's own limit; the judge
# raises that to the second number at most.
OPEN_FILES, OPEN_FILES_SHARE, JUDGES_OPEN_FILES = 1024, 1 / 4, 1 << 16
USER_PROCESSES = 4096
HIGHEST = 3
LEVEL = 1  # the lowest; `ZygoteReady.level` has the machine's, which goes into verdicts
SHARED_MEMORY = "/dev/shm"  # noqa: S108
ROOMY, EMPTY = "size=25%,mode=1777", "size=1m,mode=755"
TEMPORARY = ("/tmp", "/var/tmp")  # noqa: S108  # private, and writable
MACHINE_WIDE = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs")
MASKED = ("/etc/shadow", "/etc/gshadow", "/etc/shadow-", "/etc/gshadow-")

# The environment variables that a child gets; all others are dropped.
PASSED = frozenset(
    [
        *("LC_ALL", "LC_COLLATE", "LC_CTYPE", "LC_MESSAGES", "LC_NUMERIC", "LC_TIME"),
        *("LANG", "LANGUAGE", "TZ", "TERM", "STARK_RUN", "SPT_NOENV", "VIRTUAL_ENV"),
        *("LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "PYTHONPATH", "PATH"),
        *("CC", "CXX", "CUDAHOSTCXX"),
    ]
)
PASSED_PREFIXES = ("CUDA_", "NVIDIA_", "OMP_", "GOMP_", "KMP_", "MKL_")
# A program with this prefix is a client of MPS, a daemon that merges the processes of a card.  No
# child is one: then the work of one process no longer waits for that of another, by which the judge
# finds what a candidate leaves running, and a fault of one ends all.  A client that finds no daemon
# in its folder uses the card itself.
MPS_PREFIX = "CUDA_MPS_"
NO_MPS = {"CUDA_MPS_PIPE_DIRECTORY": "/nonexistent"}
# Dropped whatever the prefix: NVIDIA_API_KEY is a secret, not a setting.
SECRET = re.compile(r"KEY|TOKEN|SECRET|PASS|CRED|AUTH|PRIVATE", re.IGNORECASE)


def refusal(minimum: int, level: int) -> str | None:
    """Return why `level` is not enough for `minimum`; None when it is."""
    if minimum <= level:
        return None
    if minimum > HIGHEST:
        return f"sandbox level {minimum} is asked for, the highest is {HIGHEST} (--min-sandbox)"
    return (
        f"sandbox level {minimum} is asked for, this machine gives this user level {level}; "
        f"use --min-sandbox {level}"
    )


def environment(origin: dict[str, str], folder: str, **extra: str) -> dict[str, str]:
    """Return the whole environment of a child whose scratch is `folder`."""
    kept = {
        name: value
        for name, value in origin.items()
        if name in PASSED or (name.startswith(PASSED_PREFIXES) and not SECRET.search(name))
        if not name.startswith(MPS_PREFIX)
    }
    tools = str(Path(sys.executable).parent)  # ninja is installed beside the interpreter
    kept.update(
        PATH=f"{tools}:{kept.get('PATH', os.defpath)}",
        PYTHONPATH=module_path(kept),
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
        KINETO_LOG_LEVEL="99",  # torch's profiler writes into the candidate's output otherwise
        # Source lines for compute-sanitizer and ncu; the machine code is the same.
        NVCC_APPEND_FLAGS="-lineinfo",
        **NO_MPS,
        **extra,
    )
    return kept


def unshare_namespaces(ready: ZygoteReady) -> None:
    """In an init process: enter new namespaces; the next fork is their first process."""
    uid, gid = os.getuid(), os.getgid()
    linux.unshare(SPACES | (linux.NEW_USER if ready.user else 0))
    if ready.user:
        linux.map_user(uid, gid)


def mount_filesystem(confinement: Confinement, ready: ZygoteReady, device: str) -> bool:
    """In the first process of new namespaces: mount the file system that the child may see.

    Return whether the number of processes is capped.  The order matters: a path that stays visible
    is opened before the folder above it is hidden.
    """
    linux.mount("none", "/", "none", linux.MS_REC | linux.MS_PRIVATE)
    linux.mount("proc", "/proc", "proc", CAREFUL | linux.MS_NOEXEC)
    capped = _cap_processes(confinement.processes)
    _hide(confinement)
    for masked in filter(os.path.exists, MASKED):
        linux.mount("/dev/null", masked, "none", linux.MS_BIND)
    _mount_devices(device)
    if ready.read_only:
        linux.set_read_only("/", read_only=True, recursive=True)
        own = [path for path in TEMPORARY if path in confinement.hide]
        for path in (*own, *ready.writable, confinement.folder):
            linux.set_read_only(path, read_only=False, recursive=False)
        if "/proc" in ready.writable:
            _guard_proc()
    linux.mount("tmpfs", SHARED_MEMORY, "tmpfs", CAREFUL, ROOMY)
    if confinement.own_network:
        linux.raise_loopback()
    return capped


def _hide(confinement: Confinement) -> None:
    """Make folders look empty, except for the scratch folder and the paths that a child needs."""
    folders = [Path(path) for path in confinement.hide]
    inside = [p for p in confinement.keep if any(Path(p).is_relative_to(f) for f in folders)]
    # Only the outermost paths: a path inside another one is mounted together with it.
    roots = [p for p in inside if not any(Path(p) != Path(o) and _below(p, o) for o in inside)]
    kept = [(path, os.open(path, os.O_PATH | os.O_CLOEXEC)) for path in roots]
    kept.append((confinement.folder, os.open(confinement.folder, os.O_PATH | os.O_CLOEXEC)))
    for hidden in confinement.hide:
        if Path(hidden).is_dir():  # unless one above it is hidden already
            options = ROOMY if hidden in TEMPORARY else EMPTY
            linux.mount("tmpfs", hidden, "tmpfs", CAREFUL, options)
    for path, place in kept:
        source = f"/proc/self/fd/{place}"
        if Path(source).is_dir():
            Path(path).mkdir(parents=True, exist_ok=True)
        elif not Path(path).exists():
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).touch()
        linux.mount(source, path, "none", linux.MS_BIND | linux.MS_REC)
        os.close(place)


def _below(path: str, other: str) -> bool:
    return Path(path).is_relative_to(other)


def _mount_devices(device: str) -> None:
    """Mount a /dev that has only a few harmless nodes and the card's nodes."""
    places = [
        (path, os.open(path, os.O_PATH | os.O_CLOEXEC)) for path in paths.device_nodes(device)
    ]
    linux.mount("tmpfs", "/dev", "tmpfs", linux.MS_NOSUID | linux.MS_NOEXEC, "size=64k,mode=755")
    for path, place in places:
        source = f"/proc/self/fd/{place}"
        if Path(source).is_dir():
            Path(path).mkdir()
        else:
            Path(path).touch()
        linux.mount(source, path, "none", linux.MS_BIND | linux.MS_REC)
        os.close(place)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        Path("/dev", name).symlink_to(f"/proc/self/fd/{number}")
    Path("/dev/fd").symlink_to("/proc/self/fd")
    Path(SHARED_MEMORY).mkdir()


def _guard_proc() -> None:
    """Make machine-wide settings in /proc read-only: the candidate may be root."""
    for path in filter(os.path.exists, MACHINE_WIDE):
        linux.mount(path, path, "none", linux.MS_BIND | linux.MS_REC)
        linux.set_read_only(path, read_only=True, recursive=True)


def _cap_processes(limit: int | None) -> bool:
    # Since Linux 6.14 this limit belongs to the pid namespace.  Before, it belongs to the whole
    # machine, and a write would affect all of its processes.
    release = tuple(int(part) for part in os.uname().release.split(".")[:2] if part.isdigit())
    if limit is None or release < (6, 14):
        return False
    try:
        Path("/proc/sys/kernel/pid_max").write_text(str(limit), encoding="ascii")
    except OSError:
        return False
    return True


def candidates_open_files() -> int:
    """Return the limit of open files of candidates' processes, after raising that of this one.

    The kernel counts the descriptors that all of a user's processes have sent through Unix sockets
    and not received.  Where these are more than the open files of the process that sends another,
    it is refused: candidates could keep the judge and its children from passing any.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = JUDGES_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, JUDGES_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return min(OPEN_FILES, int(OPEN_FILES_SHARE * most))


def confine(confinement: Confinement, ready: ZygoteReady, device: str) -> None:
    """In the process that will run candidate code: set limits and environment, drop privileges."""
    limits = [
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, confinement.open_files),
        (resource.RLIMIT_DATA, confinement.data_bytes),
        (resource.RLIMIT_FSIZE, confinement.file_bytes),
    ]
    if confinement.processes is not None and os.getuid():
        # The kernel counts all of the user's processes, so the cap is loose; root is exempt.
        limits.append((resource.RLIMIT_NPROC, confinement.processes + USER_PROCESSES))
    for which, wanted in limits:
        if wanted is not None:
            hard = resource.getrlimit(which)[1]
            least = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(which, (least, least))
    os.environ.clear()
    os.environ.update(confinement.environment)
    os.chdir(confinement.folder)
    if not confinement.isolated:
        return
    linux.drop_capabilities()
    # Tools talk to the program that they inspect over 127.0.0.1, in a network namespace of its own.
    connects = confinement.own_network and ready.namespaces
    if ready.landlock:
        landlock.restrict(landlock_rules(confinement, ready, device), tcp=connects)
    if ready.seccomp:
        seccomp.install(own_network=connects, alone=ready.namespaces)


def landlock_rules(
    confinement: Confinement, ready: ZygoteReady, device: str
) -> list[tuple[str, int]]:
    """Return the landlock rules: path, access."""
    allowed = [(path, landlock.READ_RIGHTS) for path in (*paths.SYSTEM_FOLDERS, *confinement.keep)]
    allowed.append(("/proc", landlock.WRITE_RIGHTS if device == "cuda" else landlock.READ_RIGHTS))
    allowed.append(("/dev", landlock.READ_DIR))
    allowed += [(path, landlock.DEVICE_RIGHTS) for path in paths.device_nodes(device)]
    own = [confinement.folder, SHARED_MEMORY]
    if ready.namespaces:
        own += [path for path in TEMPORARY if path in confinement.hide]
    return allowed + [(path, landlock.OWN_FOLDER_RIGHTS) for path in own]
