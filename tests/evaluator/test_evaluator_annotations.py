"""What a verdict says besides its outcome, and the rules that a user may set."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from evaluator_samples import TASK, candidate
from msgspec.structs import replace

from actors.evaluator import verdict_annotations
from actors.evaluator.children import correctness
from actors.evaluator.judge import Judge
from actors.evaluator.sandbox.scratch import remove_tree
from actors.evaluator.timing.timing_statistics import Timing
from protocol.settings import JudgeRules, Limits
from protocol.values import Outcome, Task, Verdict

CORRECT = Verdict(verdict=Outcome.CORRECT, speedup=1.0)


def test_labels_are_kept_apart_from_the_verdict() -> None:
    """A module of library calls is correct and says so; only a user's own rule rejects it."""
    free = verdict_annotations.with_labels(CORRECT, candidate(), TASK, None, JudgeRules())
    assert free.is_correct
    assert free.profile == {"labels": "library_only, renamed_reference"}
    strict = verdict_annotations.with_labels(
        CORRECT, candidate(), TASK, None, JudgeRules(require_custom_kernel=True)
    )
    assert strict.verdict is Outcome.REJECTED
    assert strict.reason


def test_contention_is_reported() -> None:
    """The figures say that other programs used the machine, which explains a wide interval."""

    def told(contention: float) -> str:
        timed = Timing(
            median_us=50.0,
            reference_us=90.0,
            speedup=1.8,
            ci95=None,
            groups=8,
            reference_contention=contention,
        )
        return verdict_annotations.verdict_figures(timed, None, None, ())["timing"]

    assert told(1.05) == "8 groups A B B A"
    assert "calls took up to 2.5 times as long" in told(2.5)


def test_an_interval_that_says_nothing_is_told_in_words() -> None:
    """Groups that are a thousand times apart say that the machine was busy, and no more."""
    timed = Timing(
        median_us=50.0, reference_us=90.0, speedup=1.8, ci95=(0.001, 4e5), groups=3, busy_groups=3
    )
    told = verdict_annotations.verdict_figures(timed, None, None, ())["timing"]
    assert "too far apart to say how fast it is: judge it again on a machine with less" in told
    quiet = replace(timed, busy_groups=0, is_quiet=True)
    told = verdict_annotations.verdict_figures(quiet, None, None, ())["timing"]
    assert told.endswith("too far apart to say how fast it is")


def test_lowered_clocks_are_not_called_other_programs() -> None:
    """A card at its power limit is not a busy machine."""
    timed = Timing(
        median_us=50.0,
        reference_us=90.0,
        speedup=1.8,
        ci95=None,
        groups=8,
        busy_groups=8,
        throttled_groups=8,
    )
    told = verdict_annotations.verdict_figures(timed, None, None, ())["timing"]
    assert told == "8 groups A B B A, 8 at clocks that the card had lowered"


def test_disturbed_groups_are_reported() -> None:
    """The figures say how many groups count, and how many were left out."""
    timed = Timing(
        median_us=50.0, reference_us=90.0, speedup=1.8, ci95=None, groups=8, disturbed_groups=2
    )
    figures = verdict_annotations.verdict_figures(timed, None, None, ())
    assert figures == {"timing": "8 groups A B B A, 2 disturbed ones left out"}


def test_a_lower_precision_counts_only_where_it_is_allowed(
    judge: Judge, task: Task, tmp_path: Path
) -> None:
    """Half precision instead of float32 is wrong, unless the user allows it."""
    forward = "return (torch.relu(x * self.scale + y).bfloat16() + self.bias).float()"
    rules = JudgeRules(precision="bfloat16")
    lenient = Judge("cpu", Limits(time_s=0.05), tmp_path / "judge", rules=rules)
    try:
        found = [each.judge(task, candidate(forward=forward)) for each in (judge, lenient)]
    finally:
        lenient.close()
    outcomes = [verdict.verdict for verdict in found if isinstance(verdict, Verdict)]
    assert [Outcome.WRONG, Outcome.CORRECT] == outcomes


def test_a_large_tensor_is_compared_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """Comparing in pieces gives the same first difference, count and worst error."""
    monkeypatch.setattr(correctness, "ELEMENTS_AT_ONCE", 100)
    truth = torch.randn(50, 20)
    mine = truth.clone()
    mine[20, 3] += 1
    mine[49, 19] = float("nan")
    found = correctness.compare(mine, truth, None, "output")
    assert found.reason.startswith("output[20, 3]: expected")
    assert "2 of 1000 elements differ" in found.reason
    assert not correctness.compare(truth.clone(), truth, None, "output").reason


def test_deep_folders_are_removed(tmp_path: Path) -> None:
    """Deep and locked folders of a candidate are removed, too."""
    top = tmp_path / "scratch"
    folder = top
    for _level in range(400):
        folder = folder / ("d" * 8)
    folder.mkdir(parents=True)
    (folder / "file").write_text("x")
    (top / ("d" * 8)).chmod(0o000)
    remove_tree(top)
    assert not top.exists()
