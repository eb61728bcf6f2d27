"""The parts of a winner's file, read from its text without running it."""

from __future__ import annotations

import ast
import re

from protocol.frozen_struct import Value
from protocol.values import DeviceKind

KERNELS_MARK = "\n\n\n# --- the kernels: a candidate that was judged"
GUARD_MARK = "\n# --- the guard:"
# The comment that a run writes above a winner: its first line names the task.
HEADER = re.compile(r"# (\S+): ModelNew, a drop-in for the task's Model[^\n]*\n(?:#[^\n]*\n)*\n*")


class NotADropInError(ValueError):
    """The text is not a winner's file; one line."""


class DropIn(Value, frozen=True, kw_only=True):
    """The three parts of a winner's file."""

    task: str  # the task's source
    header: str = ""  # the comment that a run writes above it
    candidate: str
    judged: str  # the assignment of `_JUDGED`, as text

    @property
    def task_name(self) -> str:
        """The name of the task, as the header has it; "" without one."""
        found = HEADER.match(self.header)
        return found[1] if found else ""

    @property
    def device(self) -> DeviceKind:
        """The device that the kernels run on."""
        return "cuda" if "\"device\": 'cuda'" in self.judged else "cpu"


def drop_in_parts(text: str) -> DropIn:
    """Return the parts of a winner's file; raise NotADropInError for another text."""
    task, mark, rest = text.partition(KERNELS_MARK)
    body, guard, _ = rest.partition(GUARD_MARK)
    if not mark or not guard:
        raise NotADropInError("it is not a winner's file with a task, kernels and a guard")
    try:
        code = body.partition("\n")[2]
        values = {
            node.targets[0].id: node
            for node in ast.parse(code).body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }
        candidate = ast.literal_eval(values["_KERNELS"].value)
        judged = ast.get_source_segment(code, values["_JUDGED"]) or ""
    except (SyntaxError, ValueError, KeyError) as error:
        raise NotADropInError(f"its kernels can't be read ({error!r})") from error
    header = HEADER.match(task)
    return DropIn(
        task=task[header.end() :] if header else task,
        header=header[0] if header else "",
        candidate=candidate,
        judged=judged,
    )
