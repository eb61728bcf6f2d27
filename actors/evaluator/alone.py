"""A runner in a fresh interpreter, so that a tool can be put around it.

A fork of a warm process can't be started under compute-sanitizer or ncu; this can, and it answers
the same orders over the same channel.
"""

from __future__ import annotations

import os
import sys

from actors.evaluator.surroundings import OWN_ROOM


def replace(command: tuple[str, ...], descriptor: int, device: str) -> None:
    """Become `command` with this program at its end, which takes over the channel."""
    os.set_inheritable(descriptor, True)
    # The tool's own child finds our rooms where this process does.
    rooms = [str(OWN_ROOM), *filter(None, sys.path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(rooms)}
    # No caching: each tensor is an allocation of its own, with an end that the tool knows.
    environment["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    program = [sys.executable, "-m", "actors.evaluator.alone", str(descriptor), device]
    os.execvpe(command[0], [*command, *program], environment)  # noqa: S606  # our own words


def main() -> None:
    """Serve as a runner does."""
    from actors.evaluator.runner import serve

    device = sys.argv[2]
    serve(int(sys.argv[1]), "cuda" if device == "cuda" else "cpu")
    os._exit(0)


if __name__ == "__main__":
    main()
