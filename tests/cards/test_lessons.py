"""Promised against measured, from judged attempts; what a person accepts is what requests show."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from actors.agents.cards.lessons import (
    FILE,
    Lesson,
    LessonError,
    LeverAttempt,
    accept,
    architecture_of,
    lesson_lines,
    levers_of,
    mine,
    promise_of,
    read,
    write,
)
from protocol.values import Device, Reference, Task

H100 = Device(kind="cuda", facts={"compute capability": "9.0"})
LESSON = Lesson(
    operation="matmul",
    architecture="sm_90",
    lever="fusion",
    attempts=2,
    correct=2,
    promised=2.0,
    measured=1.5,
    gains=2,
    least=1.2,
    most=1.8,
    runs=("a",),
)


def attempt(advice: str, us: float | None, parent_us: float | None = 100.0) -> LeverAttempt:
    """An attempt on a matrix product."""
    return LeverAttempt(
        run="a",
        operations=("matmul", "elementwise"),
        architecture="sm_90",
        advice=advice,
        parent_us=parent_us,
        us=us,
    )


@pytest.mark.parametrize(
    ("advice", "promise"),
    [
        ("Fuse both: 2.5x.", 2.5),
        ("Should be 3 times as fast", 3.0),
        ("from 400 µs to 100 µs", 4.0),
        ("from 1,200 us down to ~300 us", 4.0),
        ("about 25 % faster", 1.25),
        ("20% less traffic", 1.25),
        ("about 270 to 290 µs against 8,347 µs (PyTorch)", 8347 / 290),
        ("Traffic falls: about 1.1 ms instead of 3.9 ms.", 3.9 / 1.1),
        ("Hoped for: 55 to 85 µs against 1,305.", 1305 / 85),
        ("245 µs, below the bytes; 650 µs instead of 1.3 ms", 2.0),
        ("Use 128x128 tiles", None),
        ("a 256 x 128 tile a block", None),
        ("Use float4 loads.", None),
        ("from 5 us to 0 us", None),
    ],
)
def test_the_promise_of_a_plan(advice: str, promise: float | None) -> None:
    """A stated speed-up is read as old time over new time; a size is not a promise."""
    assert promise == (promise_of(advice) if promise is None else pytest.approx(promise_of(advice)))


def test_a_promise_beside_eager_is_one_beside_the_parent() -> None:
    """A plan that changes a kernel says what the task gains in all; the lever gives the rest."""
    advice = "Clusters. Hoped for: 300 µs against 1,340 µs."
    assert promise_of(advice, 1336.0, 400.0) == pytest.approx(400 / 300)
    assert promise_of(advice, 5000.0, 400.0) == pytest.approx(1340 / 300)
    assert promise_of(advice, 1336.0, None) is None
    assert promise_of("300 µs against 400 µs", 1336.0, 400.0) == pytest.approx(4 / 3)


def test_the_levers_of_a_plan() -> None:
    """A plan may name several levers; a plan of other words names none."""
    assert ("fusion", "wide loads") == levers_of("Fuse bias and ReLU, load float4.")
    assert ("tensor cores",) == levers_of("3xTF32 by mma.")
    assert () == levers_of("Make it better.")
    assert ("fusion",) == levers_of("Tensor cores cannot take a maximum; one kernel for all.")


def test_mining_compares_promised_and_measured() -> None:
    """Each lever gets the median gain of correct attempts; failed ones count as tried only."""
    found = mine(
        [
            attempt("Fuse it: 2x.", 50.0),
            attempt("Fuse all, 4x.", 100.0),
            attempt("Fused.", None),
            attempt("Fused, after a failure.", 10.0, parent_us=None),
            attempt("nothing named", 1.0),
        ]
    )

    assert 1 == len(found)
    lesson = found[0]
    assert (4, 3, 3.0) == (lesson.attempts, lesson.correct, lesson.promised)
    assert (1.5, 1.0, 2.0) == (lesson.measured, lesson.least, lesson.most)
    assert (
        "matmul, sm_90, fusion: promised 3x, measured 1.5x (1 to 2); 4 attempts, 3 correct"
        == lesson.line
    )


def test_a_first_kernel_and_a_change_of_one_are_different_lessons() -> None:
    """Leaving PyTorch's operators gives more than most levers do."""
    first = msgspec.structs.replace(attempt("Fuse it.", 10.0), from_module=True)
    found = mine([first, attempt("Fuse it.", 80.0)])
    assert sorted(one.measured or 0 for one in found) == [1.25, 10.0]
    assert [", from PyTorch's own" in one.line for one in found] == [
        one.from_module for one in found
    ]


def test_only_accepted_lines_are_kept(tmp_path: Path) -> None:
    """A person accepts lines by number; a newer line of the same lever replaces the old one."""
    newer = Lesson(operation="conv", architecture="sm_90", lever="fusion", attempts=1, correct=0)
    proposal = tmp_path / "proposal.json"
    write(proposal, [LESSON, newer])

    assert [LESSON] == accept(proposal, [1], tmp_path)
    assert [newer, LESSON] == accept(proposal, [], tmp_path)
    assert [newer, LESSON] == read(tmp_path / FILE)
    with pytest.raises(LessonError, match="no line 3"):
        accept(proposal, [3], tmp_path)
    proposal.write_text("{", encoding="utf-8")
    with pytest.raises(LessonError, match="is not a file that"):
        accept(proposal, [], tmp_path)


def test_a_request_shows_lines_of_its_operation_and_architecture() -> None:
    """Lines of other devices, other operations and single attempts are not shown."""
    task = Task(name="t", source="class Model:\n    def forward(self, x):\n        return x @ x\n")
    others = [
        msgspec.structs.replace(LESSON, **change)
        for change in ({"architecture": "sm_80"}, {"operation": "conv"}, {"gains": 1})
    ]

    lines = lesson_lines(task, Reference(eager_us=1.0, device=H100), [LESSON, *others])
    assert ["Measured in earlier runs (old time / new time):", f"- {LESSON.line}"] == lines
    assert [] == lesson_lines(task, Reference(eager_us=1.0), [LESSON])


def test_architectures_are_named_as_cards_name_them() -> None:
    """A card by its capability, a processor by its best vector flag."""
    assert "sm_90" == architecture_of(H100)
    assert "amx_tile" == architecture_of(
        Device(facts={"vector": "512 bits, avx2 avx512f amx_tile"})
    )
    assert "cpu" == architecture_of(Device())
