"""Where a call is that does not end, read off the stacks that Python writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from evaluator_samples import candidate
from hypothesis import given
from hypothesis import strategies as st

from actors.evaluator.judge import Judge
from actors.evaluator.profiling.crashes import crash_place
from actors.evaluator.profiling.stalled_call import is_stack_written, read_stalled_call
from protocol.settings import Limits
from protocol.values import Outcome, Task, Verdict

CALLS = '  File "/p/torch/nn/modules/module.py", line 1775 in _call_impl\n'
SERVES = '  File "/p/actors/evaluator/children/runner.py", line 355 in serve\n'
WAITING = f"""it says something
Timeout (0:00:05)!
Thread 0x00007f01 (most recent call first):
  File "/usr/lib/python3/threading.py", line 320 in wait
  File "/x/candidate/candidate.py", line 3 in poll

Thread 0x00007f02 (most recent call first):
  File "/p/torch/utils/ext.py", line 9 in run
  File "/x/candidate/candidate.py", line 7 in helper
  File "/x/candidate/candidate.py", line 31 in forward
{CALLS}{SERVES}"""


def test_the_innermost_line_of_the_candidate_is_read() -> None:
    """Of the thread that was called; a thread of the candidate's own may wait for ever."""
    found = read_stalled_call(WAITING, on_host=True)
    assert found is not None
    assert ("helper", "candidate.py", 7) == (found.function, found.file, found.line)
    assert "a call had not ended after 5 s, in run called there" == found.what


def test_on_a_card_the_line_is_that_of_the_launch() -> None:
    """Each launch waits for its kernel, so a kernel without an end stops the line that launches."""
    found = read_stalled_call(WAITING, on_host=False)
    assert found is not None
    assert "launches that wait for their kernels" in found.what


def test_nothing_is_told_of_a_call_that_ended_or_is_not_the_candidates() -> None:
    """A first call may be slow, and the judge's own code may wait."""
    assert read_stalled_call("it says something\n", on_host=True) is None
    assert read_stalled_call(WAITING.replace("candidate.py", "other.py"), on_host=True) is None
    assert not is_stack_written(WAITING.removesuffix(SERVES))
    assert is_stack_written(WAITING)


@given(st.text(max_size=300))
def test_a_stack_may_be_anything(garbage: str) -> None:
    """The text comes from the candidate's process."""
    for text in (garbage, WAITING.replace("31", garbage), f"{WAITING[:90]}{garbage}{SERVES}"):
        is_stack_written(text)
        read_stalled_call(text, on_host=False)


def test_only_a_check_that_ran_out_of_time_has_such_a_call() -> None:
    """A candidate that is too slow when it is timed has calls that end."""
    timed_out = Verdict(verdict=Outcome.TIMED_OUT, stage="check", reason="no answer within 30 s")
    assert "call" == crash_place(timed_out)
    assert crash_place(Verdict(verdict=Outcome.TIMED_OUT, stage="time")) is None
    assert crash_place(Verdict(verdict=Outcome.TIMED_OUT, stage="build")) is None


@pytest.mark.long
@pytest.mark.timeout(300)
def test_an_endless_loop_gets_its_line(tmp_path: Path, task: Task) -> None:
    """A model that reads "no answer within 4 s" alone can only guess."""
    source = candidate(forward="z = x\nwhile True:\n    z = z + 0")
    judge = Judge("cpu", Limits(time_s=0.3, check_s=4.0), tmp_path)
    try:
        found = judge.judge(task, source, inspected="crash")
    finally:
        judge.close()
    assert isinstance(found, Verdict)
    assert found.verdict is Outcome.TIMED_OUT
    assert found.facts is not None
    line = next(n for n, text in enumerate(source.splitlines(), 1) if "z = z + 0" in text)
    assert f"line {line} of the candidate, `z = z + 0`" in found.facts.fault_location
