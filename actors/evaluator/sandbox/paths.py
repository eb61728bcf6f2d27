"""The paths of this machine that a child needs to read, and the ones that it must not find.

Used by the judge (for its orders) and by the sandbox (for its mounts and rules).
"""

from __future__ import annotations

import os
import pwd
import site
import sys
from pathlib import Path

from actors.installation import ROOT, is_checkout

PROJECT_ROOT = ROOT
# Only the packages that a child imports, not the rest of the project's folder.
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
# Sockets, other users' temporary files, and keys that root may read: a candidate may run as root.
SHARED_FOLDERS = ("/tmp", "/var/tmp", "/run", "/etc/ssh", "/etc/ssl/private")  # noqa: S108
DEVICE_NODES = ("null", "zero", "full", "random", "urandom", "tty")
GPU_NODES = ("nvidia*", "dxg", "dri", "kfd")  # dxg: the card of a machine under WSL2


def home_folders() -> tuple[Path, ...]:
    """Return the home folders of this machine: HOME, this user's own, and the usual places."""
    try:
        own = [Path(pwd.getpwuid(os.getuid()).pw_dir)]
    except KeyError:  # a user without an entry
        own = []
    return (Path.home(), *own, Path("/root"), Path("/home"))


def required_paths() -> tuple[str, ...]:
    """Return the paths that a child must be able to read in addition to `SYSTEM_FOLDERS`."""
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
    # The working directory is on Python's path, too; it must not open a home or a run folder.
    closed = {Path.cwd(), Path.home(), Path("/"), *map(Path, SHARED_FOLDERS)}
    if is_checkout():  # where it is installed, the folder around our packages holds torch as well
        closed.add(PROJECT_ROOT)
    for path in (Path(entry).absolute() for entry in entries):
        if not _exists(path) or closed & {path, path.resolve()}:
            continue
        if any(
            home.is_relative_to(each) for home in home_folders() for each in (path, path.resolve())
        ):
            continue  # a folder above a home would open the home
        found += [path, path.resolve()]
    return tuple(sorted({str(path) for path in found if _exists(path)}))


def hidden_paths(wanted: list[Path]) -> tuple[str, ...]:
    """Return the `wanted` folders that can be hidden, outermost first.

    A hidden folder looks empty except for the paths in it that a child needs.
    """
    needs = [Path(need) for need in (*required_paths(), *SYSTEM_FOLDERS)]
    found = {path.resolve() for path in wanted if _exists(path) and path.is_dir()}
    free = {path for path in found if not any(path.is_relative_to(need) for need in needs)}
    free |= {path for path in found if path in map(Path, SHARED_FOLDERS)}
    free.discard(Path("/"))
    return tuple(sorted(str(path) for path in free))


def device_nodes(device: str) -> tuple[str, ...]:
    """Return the device nodes in a child's /dev."""
    card = [str(path) for glob in GPU_NODES for path in Path("/dev").glob(glob)]
    plain = [f"/dev/{name}" for name in DEVICE_NODES]
    return tuple(path for path in [*plain, *(card if device == "cuda" else [])] if _exists(path))


def _exists(path: str | Path) -> bool:
    try:
        return Path(path).exists()
    except PermissionError:  # on a folder above it: a child can't read the path either
        return False
