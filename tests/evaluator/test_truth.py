"""How far the judge is off: what is counted as off, and which kernels are looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.benchmarks import ordinary_clock, truth
from scripts.benchmarks.honest_kernels import honest_kernels, in_drawn_order
from scripts.benchmarks.truth import Deviations, deviation_of, is_off, summary


@pytest.mark.parametrize(
    ("judged_us", "clock_us", "is_within"),
    [(102.9, 100.0, True), (103.1, 100.0, False), (3.2, 2.8, True), (3.4, 2.8, False)],
)
def test_three_per_cent_or_half_a_microsecond(
    judged_us: float, clock_us: float, is_within: bool
) -> None:
    """A call under 5 µs launches nothing: there the judge's resolution counts."""
    deviation = deviation_of([(judged_us, clock_us)] * 6)
    assert deviation.is_within == is_within
    assert deviation.is_surely_beyond != is_within


def test_a_deviation_within_its_own_noise_is_told_apart() -> None:
    """Groups that are a tenth apart say little: the summary counts them, not as surely off."""
    pairs = [(1.0 + step / 20, 1.0) for step in range(-2, 6)]
    deviation = deviation_of([(judged * 50, clock * 50) for judged, clock in pairs])
    assert not deviation.is_within
    assert not deviation.is_surely_beyond
    found = [Deviations(same=deviation_of([(50.0, 50.0)] * 6), apart=deviation)]
    assert "1 beyond 3 %, 0 with their whole interval" in summary(found)
    assert not is_off(found)
    assert is_off([Deviations(same=deviation, apart=deviation)])


def test_the_first_kernels_of_a_drawn_order_are_of_all_kinds() -> None:
    """Each text draws its own order of all kernels; any four in a row begin with each kind."""
    kernels = honest_kernels("cuda")
    one, other = (in_drawn_order(kernels, text) for text in ("4f0a1df", "d6ec460"))
    assert sorted(each.name for each in one) == sorted(each.name for each in kernels)
    assert [each.name for each in one] != [each.name for each in other]
    for drawn in (one, other):
        assert (
            len({each.kind for each in drawn[:4]}) == len({each.kind for each in drawn[4:8]}) == 4
        )


def test_a_pair_of_files_is_a_kernel_that_another_clock_can_import(tmp_path: Path) -> None:
    """The task's inputs are in front of the candidate, and no line has to be a file's first."""
    task, candidate = tmp_path / "task.py", tmp_path / "own.py"
    task.write_text(
        "from __future__ import annotations\nSIZE = 3\ndef get_inputs():\n    return []\n"
    )
    candidate.write_text("from __future__ import annotations\nclass ModelNew:\n    pass\n")

    kernel = truth.kernel_of(task, candidate)

    assert (kernel.name, kernel.task, kernel.candidate) == (
        "own",
        task.read_text(),
        candidate.read_text(),
    )
    module = ordinary_clock.imported(kernel.clocked, tmp_path)
    assert module.get_inputs() == []
    assert module.ModelNew
