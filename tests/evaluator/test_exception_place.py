"""The line of a candidate that raised a Python exception, read off its traceback."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.evaluator.profiling.exception_place import read_exception, with_exception_place
from protocol.facts import VerdictFacts
from protocol.values import Outcome, Verdict

SOURCE = "import torch\n" * 15 + "        self.k(grid=(n//256, 1, 1), shared_mem=300000)\n"
REASON = "RuntimeError: Kernel requires 300000 bytes of shared memory (>= 48KB)"
# As a card's runner wrote it, with another exception's traceback in the output after it.
LOG = """Traceback (most recent call last):
  File "candidate.py", line 3, in __init__
    raise ValueError("first")
ValueError: first

which led to:

Traceback (most recent call last):
  File "candidate.py", line 16, in forward
    self.k(grid=(n//256, 1, 1), shared_mem=300000)
    ~~~~~~^^^^^^^^^^^^^^^^^^^^^
  File "torch/cuda/_utils.py", line 403, in __call__
RuntimeError: Kernel requires 300000 bytes of shared memory (>= 48KB), but not configured.

Traceback (most recent call last):
  File "candidate.py", line 1, in a_thread
OSError: printed by a thread
"""
CRASHED = Verdict(verdict=Outcome.CRASHED, stage="check", reason=REASON, log=LOG)


def location(verdict: Verdict) -> str:
    """Where the verdict says that the candidate failed."""
    found = with_exception_place(verdict, SOURCE)
    return found.facts.fault_location if found.facts is not None else ""


def test_the_candidates_own_line_is_told() -> None:
    """Not torch's line, which a model can't repair, and not that of another exception."""
    assert (
        "RuntimeError in __call__, called in forward at candidate.py:16 (line 16 of the candidate, "
        "`self.k(grid=(n//256, 1, 1), shared_mem=300000)`)"
    ) == location(CRASHED)


@pytest.mark.parametrize("kind", ["torch.OutOfMemoryError", "OutOfMemoryError"])
def test_memory_that_ran_out_has_a_line(kind: str) -> None:
    """The reason names the exception without its module, the traceback may have it."""
    log = LOG.replace("\nRuntimeError", f"\n{kind}")
    reason = "OutOfMemoryError: CUDA out of memory. Tried to allocate 1024.00 GiB."
    full = Verdict(verdict=Outcome.OUT_OF_MEMORY, stage="check", reason=reason, log=log)
    assert location(full).startswith("OutOfMemoryError in __call__, called in forward at candidate")


def test_a_file_that_does_not_parse_has_a_line_without_a_function() -> None:
    """A syntax error names no function."""
    trace = "Traceback (most recent call last):\n"
    log = f'{trace}  File "candidate.py", line 2\n    )\nSyntaxError: no\n'
    found = read_exception(log, "SyntaxError: no")
    assert found is not None
    assert ("SyntaxError", "", 2) == (found.what, found.function, found.line)


def test_what_a_tool_found_stays() -> None:
    """An access out of bounds is nearer to the cause than the line that noticed it."""
    known = VerdictFacts(fault_location="Invalid write in k")
    verdict = Verdict(verdict=Outcome.CRASHED, stage="check", reason=REASON, log=LOG, facts=known)
    assert "Invalid write in k" == location(verdict)
    correct = Verdict(verdict=Outcome.CORRECT, log=LOG, reason=REASON)
    assert correct == with_exception_place(correct, SOURCE)


@given(st.text(max_size=300))
def test_a_traceback_may_be_anything(garbage: str) -> None:
    """The text comes from the candidate's process."""
    for log, reason in ((garbage, REASON), (LOG.replace("16", garbage), garbage), (LOG, garbage)):
        with_exception_place(
            Verdict(verdict=Outcome.CRASHED, stage="check", reason=reason, log=log), garbage
        )


DUMP = """Fatal Python error: Segmentation fault

Current thread 0x00007f5cf9018b80 (most recent call first):
  File "lib/python3.11/ctypes/__init__.py", line 519 in string_at
  File "candidate.py", line 16 in forward
  File "torch/nn/modules/module.py", line 1789 in _call_impl
"""


@pytest.mark.parametrize(
    ("dump", "what"),
    [
        (DUMP, "SIGSEGV in string_at, called in forward at candidate.py:16 "),
        (DUMP.replace(DUMP.splitlines()[3] + "\n", ""), "SIGSEGV in forward at candidate.py:16 "),
        (DUMP.replace("candidate.py", "other.py"), ""),
        ("", ""),
    ],
)
def test_a_killed_process_has_a_line(dump: str, what: str) -> None:
    """The line whose call into compiled code did not return."""
    killed = Verdict(
        verdict=Outcome.CRASHED, stage="check", reason="killed by SIGSEGV", log=f"noise\n{dump}"
    )
    assert location(killed).startswith(what)
    assert bool(what) is bool(location(killed))
