"""Control groups: limits on the memory and the number of processes of one child and its children.

Version 2 is used where its controllers are available, version 1 elsewhere.  A zygote once finds a
group in which it may make groups.  An init process makes one group for each child (in version 1:
one for each controller).  The child enters it before any candidate code runs, and the init process
removes it.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

PREFIX = "stark-"
CONTROLLERS = ("memory", "pids")
REMOVE_S = 2.0


def make_own_groups() -> tuple[str, ...]:
    """Make the groups that will hold the children's groups; () where that can't be done."""
    mounts, memberships = _mounts(), _memberships()
    unified = mounts.get("")
    made = [_version_2(unified, memberships.get("", "/"))] if unified else []
    if not any(made):
        made = [
            _version_1(mounts[name], memberships.get(name, "/")) if name in mounts else None
            for name in CONTROLLERS
        ]
    if all(made):
        return tuple(str(path) for path in made)
    _remove([path for path in made if path])
    return ()


def remove_own_groups(places: tuple[str, ...]) -> None:
    """Remove the groups of `make_own_groups`, and what killed init processes left in them."""
    for top in map(Path, places):
        _remove([path for path in top.glob(f"{PREFIX}*") if path.is_dir()])
    _remove([Path(top) for top in places])


def has_processor_limit() -> bool:
    """Whether a group above this process, or its own, limits the processor time (`cpu.max`)."""
    files = (("", "cpu.max"), ("cpu", "cpu.cfs_quota_us"))
    limits = [
        _text(group / file).split() for controller, file in files for group in _chain(controller)
    ]
    return any(limit and limit[0] not in ("max", "-1") for limit in limits)


def divides_processor_time() -> bool:
    """Whether groups above this process share the processor time among those in them.

    A child's group may then have a share of its own (version 2; in version 1 children's groups are
    not in the hierarchy of processor time).
    """
    return any("cpu" in _text(group / "cgroup.subtree_control").split() for group in _chain(""))


def _chain(controller: str) -> list[Path]:
    """Return this process's group of a controller's hierarchy, and all above it."""
    mount = _mounts().get(controller)
    if mount is None:
        return []
    here = _inside(mount, _memberships().get(controller, "/"))
    return [here, *(each for each in here.parents if each.is_relative_to(mount))]


def _mounts() -> dict[str, Path]:
    """Return the mount point of each controller's hierarchy; version 2's under ""."""
    found: dict[str, Path] = {}
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        left, _, right = line.partition(" - ")
        kind, _source, options = right.split(" ", 2)
        where = Path(left.split()[4])
        if kind == "cgroup2":
            found.setdefault("", where)
        elif kind == "cgroup":
            for name in set(options.split(",")) & {*CONTROLLERS, "cpu"}:
                found.setdefault(name, where)
    return found


def _memberships() -> dict[str, str]:
    """Return the groups that this process is in; version 2's under ""."""
    found = {}
    for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
        _number, names, path = line.split(":", 2)
        found.update(dict.fromkeys(names.split(","), path))
    return found


def _version_2(mount: Path, member: str) -> Path | None:
    """Make a group in the nearest group above this process that permits it."""
    here = _inside(mount, member)
    for parent in (here, *here.parents):
        if not parent.is_relative_to(mount):
            break
        if not set(CONTROLLERS) <= set(_text(parent / "cgroup.controllers").split()):
            continue
        with contextlib.suppress(OSError):
            if not set(CONTROLLERS) <= set(_text(parent / "cgroup.subtree_control").split()):
                # Refused where the group has processes, and those are not ours to move.
                _write(parent / "cgroup.subtree_control", "+memory +pids")
            made = _make(parent)
            try:
                _write(made / "cgroup.subtree_control", "+memory +pids")
            except OSError:
                made.rmdir()
                raise
            return made
    return None


def _version_1(mount: Path, member: str) -> Path | None:
    with contextlib.suppress(OSError):
        return _make(_inside(mount, member))
    return None


def _inside(mount: Path, member: str) -> Path:
    # In a container the path may be one of the host that is not mounted in the container.
    path = mount / member.strip("/")
    return path if path.is_dir() else mount


def _make(parent: Path) -> Path:
    for old in parent.glob(f"{PREFIX}*"):
        if not Path("/proc", old.name.removeprefix(PREFIX)).exists():
            _remove([*old.glob(f"{PREFIX}*"), old])
    made = parent / f"{PREFIX}{os.getpid()}"
    made.mkdir(exist_ok=True)
    return made


def _remove(groups: list[Path]) -> None:
    for group in groups:
        with contextlib.suppress(OSError):  # not empty: a process is still in it
            group.rmdir()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return ""


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="ascii")


class ChildCgroup:
    """The groups of one child."""

    def __init__(
        self, places: tuple[str, ...], memory_bytes: int | None, processes: int | None
    ) -> None:
        """Make the groups and set their limits; raise OSError where that fails."""
        self._groups = [_make(Path(top)) for top in places]
        self._procs_files: list[int] = []
        self._parents: list[int] = []
        self._kill_files: list[int] = []
        for group in self._groups:
            if memory_bytes is not None:
                _limit_memory(group, memory_bytes)
            if processes is not None and (group / "pids.max").exists():
                _write(group / "pids.max", str(processes))
            # Opened now: inside the sandbox control groups are hidden or read-only.  The init
            # process shares the mounts of the sandbox, so it could not remove them by path either.
            self._procs_files.append(os.open(group / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC))
            self._parents.append(os.open(group.parent, os.O_PATH | os.O_CLOEXEC))
            if (group / "cgroup.kill").exists():
                self._kill_files.append(os.open(group / "cgroup.kill", os.O_WRONLY | os.O_CLOEXEC))

    def enter(self) -> None:
        """In the child: enter the groups, with all later children, and close the descriptors."""
        for procs_file in self._procs_files:
            os.write(procs_file, b"0")
        self.close_descriptors()

    def close_descriptors(self) -> None:
        """Close all descriptors, in a process that is not the init process."""
        for descriptor in (*self._procs_files, *self._parents, *self._kill_files):
            os.close(descriptor)
        self._procs_files, self._parents, self._kill_files = [], [], []

    def ran_out_of_memory(self) -> bool:
        """Whether the kernel killed a process in it because memory ran out."""
        fields = " ".join(
            _text(group / name)
            for group in self._groups
            for name in ("memory.events", "memory.oom_control")
        ).split()
        pairs = dict(zip(fields[::2], fields[1::2], strict=False))
        return pairs.get("oom_kill", "0") != "0"

    def close(self) -> None:
        """Kill the processes that are left in the groups and remove the groups."""
        for kill in self._kill_files:
            with contextlib.suppress(OSError):
                os.write(kill, b"1")
        until = time.monotonic() + REMOVE_S
        for group, parent in zip(self._groups, self._parents, strict=True):
            while not _removed(group.name, parent) and time.monotonic() < until:
                time.sleep(0.001)
        self.close_descriptors()


def _removed(name: str, parent: int) -> bool:
    try:
        os.rmdir(name, dir_fd=parent)
    except FileNotFoundError:
        return True
    except OSError:  # the kernel still counts its last process
        return False
    return True


def _limit_memory(group: Path, limit: int) -> None:
    if (group / "memory.max").exists():
        _write(group / "memory.max", str(limit))
        _write(group / "memory.oom.group", "1")
        if (group / "memory.swap.max").exists():
            _write(group / "memory.swap.max", "0")
    elif (group / "memory.limit_in_bytes").exists():
        _write(group / "memory.limit_in_bytes", str(limit))
        swap = group / "memory.memsw.limit_in_bytes"
        if swap.exists():
            _write(swap, str(limit))
