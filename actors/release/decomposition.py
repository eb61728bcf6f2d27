"""The parts of a winner's file, read from its text without running it."""

from __future__ import annotations

import ast

from protocol.frozen_struct import Value
from protocol.values import DeviceKind

KERNELS_MARK = "\n\n\n# --- the kernels: a candidate that was judged"
GUARD_MARK = "\n# --- the guard:"


class NotADropInError(ValueError):
    """The text is not a winner's file; one line."""


class DropIn(Value, frozen=True, kw_only=True):
    """The three parts of a winner's file."""

    task: str  # the task's source, with the comment that a run writes above it
    candidate: str
    judged: str  # the assignment of `_JUDGED`, as text

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
    return DropIn(task=task, candidate=candidate, judged=judged)
