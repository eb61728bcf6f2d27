"""Hosts on one machine: network namespaces, each with a link (veth) to the first one.

They need root and `ip` (iproute2); `unavailable_reason` says what is missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass, field


def ip(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=True, timeout=20)


def unavailable_reason() -> str:
    """Return why hosts can't be made here; "" when they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "there is no `ip`: apt-get install iproute2"
    probe = f"stark-{os.getpid()}-probe"
    try:
        ip("netns", "add", probe)
        ip("-n", probe, "link", "add", "x", "type", "veth", "peer", "name", "y")
    except subprocess.SubprocessError as error:
        text = (error.stderr if isinstance(error, subprocess.CalledProcessError) else "") or error
        return f"no network namespaces here: {str(text).strip()}"
    finally:
        subprocess.run(["ip", "netns", "del", probe], capture_output=True, check=False)
    return ""


@dataclass
class Hosts:
    """The first host is the centre; each other host can reach the centre only."""

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
        """Return the words in front of a command that make it run on that host."""
        # Not `ip netns exec`, which adds a process between this one and the command.
        return ["nsenter", f"--net=/run/netns/{self.spaces[name]}"]

    def address(self, name: str) -> str:
        """Return the centre's address on its link to `name`."""
        return f"10.77.{self.names.index(name)}.1"

    def cut(self, name: str) -> None:
        """Take the link down: packets are lost, and no end gets an error."""
        ip("-n", self.spaces[self.names[0]], "link", "set", f"to-{name}", "down")

    def heal(self, name: str) -> None:
        ip("-n", self.spaces[self.names[0]], "link", "set", f"to-{name}", "up")
