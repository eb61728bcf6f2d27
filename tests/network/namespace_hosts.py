"""Hosts on one machine: network namespaces, each with a cable (veth) to the first one.

Needs root and `ip` (iproute2); `why_not` says what is missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass, field


def ip(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=True, timeout=20)


def why_not() -> str:
    """Return why no hosts can be made here; "" when they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "there is no `ip`: apt-get install iproute2"
    probe = f"stark-{os.getpid()}-probe"
    try:
        ip("netns", "add", probe)
        ip("-n", probe, "link", "add", "x", "type", "veth", "peer", "name", "y")
    except subprocess.SubprocessError as error:
        said = (error.stderr if isinstance(error, subprocess.CalledProcessError) else "") or error
        return f"no network namespaces here: {str(said).strip()}"
    finally:
        subprocess.run(["ip", "netns", "del", probe], capture_output=True, check=False)
    return ""


@dataclass
class Hosts:
    """The first host is the centre; the others see it, and it alone."""

    names: tuple[str, ...]
    spaces: dict[str, str] = field(default_factory=dict)

    def __enter__(self) -> Hosts:
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _make(self) -> None:
        for name in self.names:
            space = self.spaces[name] = f"stark-{os.getpid()}-{name}"
            ip("netns", "add", space)
            ip("-n", space, "link", "set", "lo", "up")
        centre = self.spaces[self.names[0]]
        for number, name in enumerate(self.names[1:], start=1):
            space = self.spaces[name]
            ip(
                *("-n", centre, "link", "add", "name", f"to-{name}", "type", "veth"),
                *("peer", "name", "eth0", "netns", space),
            )
            ip("-n", centre, "addr", "add", f"10.77.{number}.1/24", "dev", f"to-{name}")
            ip("-n", space, "addr", "add", f"10.77.{number}.2/24", "dev", "eth0")
            ip("-n", centre, "link", "set", f"to-{name}", "up")
            ip("-n", space, "link", "set", "eth0", "up")

    def __exit__(self, *_: object) -> None:
        for space in self.spaces.values():
            subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)

    def inside(self, name: str) -> list[str]:
        """Return what goes before a command so that it runs on that host."""
        # Not `ip netns exec`, which leaves a process of its own between us and the command.
        return ["nsenter", f"--net=/run/netns/{self.spaces[name]}"]

    def address(self, name: str) -> str:
        """Return where the centre is, as `name` sees it."""
        return f"10.77.{self.names.index(name)}.1"

    def cut(self, name: str) -> None:
        """Pull the cable: nothing goes through, and nobody is told."""
        ip("-n", self.spaces[self.names[0]], "link", "set", f"to-{name}", "down")

    def heal(self, name: str) -> None:
        ip("-n", self.spaces[self.names[0]], "link", "set", f"to-{name}", "up")
