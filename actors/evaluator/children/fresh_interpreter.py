"""A runner in a fresh interpreter, so that a tool can be put around it.

A fork of a warm process can't be started under compute-sanitizer or ncu; this can, and it answers
the same orders over the same channel.
"""

from __future__ import annotations

import os
import sys

from actors.evaluator.sandbox.paths import PROJECT_PACKAGES

# Our rooms by their own paths: where the sandbox closes the folder around them, Python's way of
# finding packages (listing it) sees nothing.
FIND_PACKAGES = """\
import importlib.util, sys
for path in {rooms!r}:
    name = path.rpartition("/")[2]
    spec = importlib.util.spec_from_file_location(
        name, path + "/__init__.py", submodule_search_locations=[path]
    )
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
from actors.evaluator.children.fresh_interpreter import main
main()
"""


def exec_with_tool(command: tuple[str, ...], descriptor: int, device: str) -> None:
    """Become `command` with this program at its end, which takes over the channel."""
    os.set_inheritable(descriptor, True)
    # Libraries are found where this process finds them.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    # No caching: each tensor is an allocation of its own, with an end that the tool knows.
    environment["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    program = [sys.executable, "-c", program_text(), str(descriptor), device]
    os.execvpe(command[0], [*command, *program], environment)  # noqa: S606  # our own words


def program_text() -> str:
    """Return the program that serves as a runner, whatever can be listed."""
    return FIND_PACKAGES.format(rooms=[str(room) for room in PROJECT_PACKAGES])


def main() -> None:
    """Serve as a runner does."""
    from actors.evaluator.children.runner import serve

    device = sys.argv[2]
    serve(int(sys.argv[1]), "cuda" if device == "cuda" else "cpu")
    os._exit(0)
