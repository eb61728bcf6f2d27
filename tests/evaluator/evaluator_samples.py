"""A small task, candidates made from it, a recording context, and questions to the machine."""

from __future__ import annotations

import sys
import textwrap
import time

from actors import procfs
from protocol.settings import Limits

TASK = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale
        self.bias = nn.Parameter(torch.randn(64))

    def forward(self, x, y):
        return torch.relu(x * self.scale + y) + self.bias

def get_inputs():
    return [torch.randn(32, 64), torch.randn(32, 64)]

def get_init_inputs():
    return [2.0]
"""

CANDIDATE = """
import torch
import torch.nn as nn
{before}
class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale
        self.bias = nn.Parameter(torch.randn(64))
        {init}

    def forward(self, x, y):
        {forward}
        return torch.relu(x * self.scale + y) + self.bias
"""

LIMITS = Limits(build_s=60.0, import_s=2.5, check_s=2.5, time_s=0.05, memory_gib=2.0, output_kib=64)


class ContextRecorder:
    """A context that remembers its reports, in order, and is revoked at a given moment."""

    def __init__(self, revoked_after_s: float = 1e9) -> None:
        self.reports: list[str] = []
        self.steps: list[tuple[str, dict[str, object]]] = []
        self._revoked_at = time.monotonic() + revoked_after_s

    def set_activity(self, text: str) -> None:
        self.reports.append(text)

    def log_step(self, event: str, **fields: object) -> None:
        self.steps.append((event, fields))

    def candidate_running(self) -> None:
        self.reports.append("running")

    def is_revoked(self) -> bool:
        return time.monotonic() > self._revoked_at


def candidate(before: str = "", init: str = "pass", forward: str = "pass") -> str:
    """Return an honest candidate with code inserted."""
    indented = [textwrap.indent(part, " " * 8).strip() for part in (init, forward)]
    return CANDIDATE.format(before=before, init=indented[0], forward=indented[1])


def wrong_candidate(before: str = "") -> str:
    """Return a candidate that runs `before` and is wrong: its verdict comes without any timing.

    A correct one costs ten times as much.
    """
    return candidate(before=before, forward="return x")


def descendants(root: int) -> set[int]:
    """Return the living processes below `root`."""
    return set(procfs.living_descendants(root))


def command(*arguments: object) -> list[str]:
    """Return the command line of the evaluator by hand."""
    return [sys.executable, "-m", "actors.evaluator", *map(str, arguments)]


def settles(root: int, known: set[int], seconds: float = 30.0) -> bool:
    """Whether within `seconds` only processes that were `known` are left below `root`."""
    until = time.monotonic() + seconds
    while descendants(root) - known:
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True
