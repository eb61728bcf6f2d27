"""What of the machine a child needs to read, and what it must not find: paths, worked out once.

Used by the judge (for its orders) and by sandboxes (for their walls).
"""

from __future__ import annotations

import os
import pwd
import site
import sys
from pathlib import Path

from actors.installation import ROOT, is_checkout

PROJECT_ROOT = ROOT
# Ours: only the rooms that a child imports, not what lies beside them.
PROJECT_PACKAGES = (PROJECT_ROOT / "actors", PROJECT_ROOT / "protocol")
SYSTEM_FOLDERS = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/etc",
    "/opt",
    "/nix",
    "/sys",
)
TOOL_VARIABLES = ("CUDA_HOME", "CUDA_PATH", "CC", "CXX", "CUDAHOSTCXX", "VIRTUAL_ENV")
PATH_VARIABLES = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH")
# Sockets and other people's temporary files; keys that root may read, and a candidate may be root.
SHARED_FOLDERS = ("/tmp", "/var/tmp", "/run", "/etc/ssh", "/etc/ssl/private")  # noqa: S108
DEVICE_NODES = ("null", "zero", "full", "random", "urandom", "tty")
GPU_NODES = ("nvidia*", "dri", "kfd")


def home_folders() -> tuple[Path, ...]:
    """Return where people keep what is theirs, whatever HOME says."""
    try:
        own = [Path(pwd.getpwuid(os.getuid()).pw_dir)]
    except KeyError:  # a user without an entry
        own = []
    return (Path.home(), *own, Path("/root"), Path("/home"))


def required_paths() -> tuple[str, ...]:
    """Return what a child must be able to read besides the system's own directories."""
    certain = [Path(sys.prefix), Path(sys.base_prefix), *PROJECT_PACKAGES]
    certain += [path.resolve() for path in certain]
    certain.append(Path(sys.executable).resolve().parent)
    certain += map(Path, site.getsitepackages())
    found = [path.absolute() for path in certain]
    entries = [entry for entry in sys.path if entry]
    entries += [e for name in PATH_VARIABLES for e in os.environ.get(name, "").split(":") if e]
    entries += [
        os.environ[name] for name in TOOL_VARIABLES if os.environ.get(name, "").startswith("/")
    ]
    # A working directory is on Python's path too: never let that open a home or a run.
    closed = {Path.cwd(), Path.home(), Path("/"), *map(Path, SHARED_FOLDERS)}
    if is_checkout():  # elsewhere the folder around our packages holds torch as well
        closed.add(PROJECT_ROOT)
    for path in (Path(entry).absolute() for entry in entries):
        if not _there(path) or closed & {path, path.resolve()}:
            continue
        if any(
            home.is_relative_to(each) for home in home_folders() for each in (path, path.resolve())
        ):
            continue  # what lies above a home would open it
        found += [path, path.resolve()]
    return tuple(sorted({str(path) for path in found if _there(path)}))


def hidden_paths(wanted: list[Path]) -> tuple[str, ...]:
    """Return which of `wanted` can look empty but for what is needed in them, outermost first."""
    needs = [Path(need) for need in (*required_paths(), *SYSTEM_FOLDERS)]
    found = {path.resolve() for path in wanted if _there(path) and path.is_dir()}
    free = {path for path in found if not any(path.is_relative_to(need) for need in needs)}
    free |= {path for path in found if path in map(Path, SHARED_FOLDERS)}
    free.discard(Path("/"))
    return tuple(sorted(str(path) for path in free))


def device_nodes(device: str) -> tuple[str, ...]:
    """Return the device nodes that a child gets."""
    card = [str(path) for glob in GPU_NODES for path in Path("/dev").glob(glob)]
    plain = [f"/dev/{name}" for name in DEVICE_NODES]
    return tuple(path for path in [*plain, *(card if device == "cuda" else [])] if _there(path))


def _there(path: str | Path) -> bool:
    try:
        return Path(path).exists()
    except PermissionError:  # of a folder on the way: then no child can read it either
        return False
