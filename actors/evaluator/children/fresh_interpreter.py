"""A runner in a fresh interpreter, started under a tool such as compute-sanitizer or ncu.

A fork of a warm process can't be started under a tool.  This program can, and it answers the same
orders over the same channel.
"""

from __future__ import annotations

import os
import sys

from actors.evaluator.sandbox.paths import PROJECT_PACKAGES

# The packages are imported by their own paths.  Python finds packages by listing the folder around
# them, and the sandbox may close that folder.
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
    """Become `command`, followed by this program, which takes over the channel."""
    os.set_inheritable(descriptor, True)
    # The new interpreter finds libraries where this process finds them.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    # Without caching each tensor is an allocation of its own, and the tool knows where it ends.
    environment["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    program = [sys.executable, "-c", program_text(), str(descriptor), device]
    os.execvpe(command[0], [*command, *program], environment)  # noqa: S606  # our own arguments


def program_text() -> str:
    """Return the program that serves as a runner, also where folders can't be listed."""
    return FIND_PACKAGES.format(rooms=[str(room) for room in PROJECT_PACKAGES])


def main() -> None:
    """Serve as a runner does."""
    from actors.evaluator.children.runner import serve

    device = sys.argv[2]
    serve(int(sys.argv[1]), "cuda" if device == "cuda" else "cpu")
    os._exit(0)
