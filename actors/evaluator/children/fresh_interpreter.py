"""A runner in a fresh interpreter, started under a tool such as compute-sanitizer or ncu.

A fork of a warm process can't be started under a tool.  This program can, and it answers the same
orders over the same channel.  Under a tool that reports from a process of its own, this process
gives its standard output and error away before candidate code runs, and enters a landlock domain
inside the tool's: the candidate can't write into the tool's report.  The tool's library in this
process is within the candidate's reach all the same, so a report decides nothing in its favour.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

from actors.evaluator.children import triton_driver
from actors.evaluator.ipc.tool_process import (
    PROFILED_CALL,
    REPORTING_TOOLS,
    TOOL_VARIABLE,
)
from actors.evaluator.sandbox.paths import PROJECT_PACKAGES
from protocol.values import DeviceKind

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
    if device == "cuda":
        triton_driver.install()
    # The new interpreter finds libraries where this process finds them.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    program = [sys.executable, "-c", program_text(), str(descriptor), device]
    os.execvpe(command[0], [*command, *program], environment)  # noqa: S606  # our own arguments


def program_text() -> str:
    """Return the program that serves as a runner, also where folders can't be listed."""
    return FIND_PACKAGES.format(rooms=[str(room) for room in PROJECT_PACKAGES])


def leave_output_to_tool() -> None:
    """Let this process and its children write nothing into the tool's report."""
    from actors.evaluator.sandbox import landlock

    null = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(null, descriptor)
    os.close(null)
    with contextlib.suppress(OSError):  # a kernel without landlock
        landlock.enter_inner_domain()


def main() -> None:
    """Serve as a runner does."""
    tool = os.environ.get(TOOL_VARIABLE, "")
    if tool in REPORTING_TOOLS:
        leave_output_to_tool()
    # Imported here: importing torch takes seconds, and the tool's library must be there before.
    from actors.evaluator.children.runner import Runner, serve
    from actors.evaluator.children.tensors import vector_math
    from actors.evaluator.ipc.runner_orders import CallOnce, FromRunner, ToRunner

    class ProfiledRunner(Runner):
        """A runner of which ncu measures one call."""

        calls = 0

        def answer(self, order: ToRunner, carried: list[int]) -> FromRunner:
            """Carry out `order`, measured if it is the call to be profiled."""
            if not isinstance(order, CallOnce):
                return super().answer(order, carried)
            self.calls += 1
            with cuda_profiler() if self.calls == PROFILED_CALL else contextlib.nullcontext():
                return super().answer(order, carried)

    device: DeviceKind = "cuda" if sys.argv[2] == "cuda" else "cpu"
    vector_math.choose_kernels()
    is_profiled = tool == "ncu" and device == "cuda"
    serve(int(sys.argv[1]), device, ProfiledRunner if is_profiled else Runner)
    os._exit(0)


@contextlib.contextmanager
def cuda_profiler() -> Iterator[None]:
    """Have ncu measure the kernels that are launched inside."""
    import torch

    runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    runtime.cudaProfilerStart()
    try:
        yield
    finally:
        runtime.cudaProfilerStop()
