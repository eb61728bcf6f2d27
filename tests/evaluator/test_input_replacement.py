"""Inputs of a call are read in that call: neither before its turn nor after it has returned."""

from __future__ import annotations

import random
import select
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
import special_corpora
from evaluator_samples import LIMITS
from hypothesis import given
from hypothesis import strategies as st

from actors.evaluator.judge import Judge
from actors.evaluator.timing import input_replacement
from actors.evaluator.timing.input_replacement import InputReplacement
from actors.evaluator.timing.sides import Sides
from actors.evaluator.timing.timing_policy import POLICY
from actors.evaluator.timing.timing_statistics import Side
from protocol.values import Outcome, Task, Verdict

TRIES = 3  # a look may say nothing on a busy machine
BLOCKS = st.integers(POLICY.least_replaced, 2048)


@pytest.fixture(scope="module")
def thorough_judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    """A judge with time for some looks: they are after some groups, by lot."""
    limits = msgspec.structs.replace(LIMITS, import_s=20.0, check_s=20.0, time_s=1.5)
    with closing(Judge("cpu", limits, tmp_path_factory.mktemp("scratch") / "judge")) as made:
        yield made


def test_a_candidate_that_computes_a_block_at_its_end_is_rejected(thorough_judge: Judge) -> None:
    """Its outputs are right when they are read; but its calls had returned without them."""
    task = Task(name="chains", source=special_corpora.task_source("chains"))
    path = special_corpora.CORPORA / "chains/hostile/computed_late.py"
    for _try in range(TRIES):
        verdict = thorough_judge.judge(task, Path(path).read_text(encoding="utf-8"))
        assert isinstance(verdict, Verdict)
        if verdict.verdict is Outcome.REJECTED:
            break
    assert Outcome.REJECTED is verdict.verdict, verdict
    assert "is not that of its inputs" in verdict.reason


VIEWS = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x[:, ::2], x.sum(1)


def get_inputs():
    return [torch.randn(64, 64)]


def get_init_inputs():
    return []
"""
OWN = "\n\nclass ModelNew(Model):\n    pass\n"


@pytest.mark.long
def test_a_view_of_an_input_is_no_late_output(
    thorough_judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It shows what is in the input when the block's outputs are copied."""

    def timed_window(
        sides: Sides,
        side: Side,
        *args: Any,
        meanwhile: Callable[[float], None] = lambda _began: None,
        **named: Any,
    ) -> object:
        def once_all_calls_are_over(began: float) -> None:
            looked_at = sides._runner_of(side).channel
            assert select.select([looked_at], [], [], LIMITS.check_s)[0]  # it has answered
            meanwhile(began)

        return plain_window(sides, side, *args, meanwhile=once_all_calls_are_over, **named)

    def is_after(replaced: InputReplacement, *_seconds: float) -> bool:
        looks.append(replaced)
        return True

    looks: list[InputReplacement] = []
    plain_window = Sides.timed_window
    monkeypatch.setattr(Sides, "timed_window", timed_window)
    monkeypatch.setattr(
        input_replacement,
        "by_lot",
        lambda calls, _rng: InputReplacement(calls=calls, coming=calls - 1, over=0, after=0.0),
    )
    monkeypatch.setattr(InputReplacement, "was_before_its_turn", lambda *_seconds: False)
    monkeypatch.setattr(InputReplacement, "was_after_its_turn", is_after)
    verdict = thorough_judge.judge(Task(name="views", source=VIEWS), VIEWS + OWN)
    assert isinstance(verdict, Verdict)
    assert Outcome.CORRECT is verdict.verdict, verdict.reason
    assert looks
    assert "note" not in (verdict.profile or {})


@given(BLOCKS, st.integers(0, 10**6))
def test_an_even_block_is_judged_by_both_calls(calls: int, seed: int) -> None:
    """Inputs that are written when they should be are before one turn, and after the other."""
    drawn = input_replacement.by_lot(calls, random.Random(seed))
    assert 0 <= drawn.after < 1
    assert len(drawn.slots) == len(set(drawn.slots))
    assert max(drawn.slots) < calls
    written_s = drawn.after + POLICY.replacing_share
    assert drawn.was_before_its_turn(written_s - 1e-9, usual_s=1.0, block_s=1.0)
    is_late = drawn.was_after_its_turn(drawn.after + 1e-9, usual_s=1.0, block_s=1.0)
    assert is_late is (drawn.over is not None)


@given(BLOCKS, st.integers(0, 10**6), st.floats(0.0, 1.0), st.floats(0.0, 0.9))
def test_a_block_that_stood_still_accuses_no_honest_candidate(
    calls: int, seed: int, share: float, stood_s: float
) -> None:
    """Wherever it stood, a call that had not ended is not told from one that computes late."""
    drawn = input_replacement.by_lot(calls, random.Random(seed))
    if drawn.over is None:
        return
    block_s = 1.0 + stood_s
    # An even pace, besides a stop that begins after a share of the calls.
    ended_s = (drawn.over + 1) / calls + (stood_s if share <= (drawn.over + 1) / calls else 0.0)
    if drawn.was_after_its_turn(drawn.after, usual_s=1.0, block_s=block_s):
        assert ended_s < drawn.after


@given(BLOCKS, st.integers(0, 10**6), st.floats(0.0, 3.0), st.floats(0.0, 3.0))
def test_a_block_that_is_held_up_at_its_end_accuses_no_honest_candidate(
    calls: int, seed: int, written_s: float, stood_s: float
) -> None:
    """Its first calls have the pace of the fastest block, which is what counts as usual."""
    drawn = input_replacement.by_lot(calls, random.Random(seed))
    if drawn.was_before_its_turn(written_s, usual_s=1.0, block_s=1.0 + stood_s):
        assert written_s < drawn.coming / calls


def test_inputs_that_came_too_late_say_nothing() -> None:
    """They may have been written in the middle of the call, or after it."""
    drawn = InputReplacement(calls=100, coming=60, over=20, after=0.45)
    assert drawn.was_before_its_turn(0.44, usual_s=1.0, block_s=1.0)
    assert not drawn.was_before_its_turn(0.46, usual_s=1.0, block_s=1.0)
    assert not drawn.was_before_its_turn(0.44, usual_s=0.9, block_s=1.0)
    assert drawn.was_after_its_turn(0.47, usual_s=1.0, block_s=1.0)
    assert not drawn.was_after_its_turn(0.45, usual_s=1.0, block_s=1.0)
    assert not drawn.was_after_its_turn(0.60, usual_s=1.0, block_s=1.2)
