"""Promised against measured, from judged attempts; what a person accepts is what requests show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from actors.agents.cards.lessons import (
    FEWER_LAUNCHES,
    FILE,
    Lesson,
    LessonError,
    Step,
    accept,
    architecture_of,
    left_out,
    lesson_lines,
    lever_of,
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
    lever="wgmma",
    steps=3,
    promised=2.0,
    gains=(1.2, 1.8),
    runs=("a",),
    tasks=("t",),
)
WGMMA, CLUSTERS = frozenset(["wgmma"]), frozenset(["clusters"])


def step(advice: str, us: float | None, **changes: Any) -> Step:
    """A step on a matrix product that adds wgmma to a kernel of 100 µs."""
    whole = Step(
        run="a",
        task="t",
        operations=("matmul", "elementwise"),
        architecture="sm_90",
        advice=advice,
        added=WGMMA,
        parent_us=100.0,
        us=us,
    )
    return replace(whole, **changes)


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


def test_a_lever_is_the_one_change_that_the_idea_names() -> None:
    """What a source adds counts, not what a plan mentions; of several changes none has a share."""
    assert "wgmma" == lever_of(step("Products by wgmma.", 50.0))
    assert not lever_of(step("Products by wgmma.", 50.0, added=frozenset()))
    assert not lever_of(step("Winograd along the depth. Then wgmma.", 50.0))
    assert not lever_of(step("wgmma in clusters.", 50.0, added=WGMMA | CLUSTERS))
    assert not lever_of(step("One kernel by wgmma.", 50.0, has_fewer_launches=True))
    fused = step("Fuse both.", 50.0, added=frozenset(), has_fewer_launches=True)
    assert FEWER_LAUNCHES == lever_of(fused)


def test_a_gain_is_that_of_the_step() -> None:
    """A first kernel is a whole design and a repair has no old time: no lesson counts them."""
    design = step("wgmma.", 10.0, is_design=True)
    repair = step("wgmma.", 10.0, parent_us=None)
    steps = [design, repair, step("wgmma: 2x.", 50.0), step("wgmma, 4x.", 100.0)]
    steps += [step("More wgmma.", None), step("Better.", 1.0)]
    (lesson,) = mine(steps)
    assert (1.0, 2.0, 1.5, 3.0) == (*sorted(lesson.gains), lesson.measured, lesson.promised)
    assert (
        "matmul, sm_90, wgmma in a kernel that worked: promised 3x, measured 1.5x (1 to 2),"
        " faster in 1; 3 steps of 1 task, 2 correct" == lesson.line
    )
    told = left_out(steps)
    assert "1 first kernels" in told
    assert "1 repairs" in told
    assert "1 steps whose idea does not name the lever" in told


def test_only_accepted_lines_are_kept(tmp_path: Path) -> None:
    """A person accepts lines by number; a newer line of the same lever replaces the old one."""
    newer = Lesson(operation="conv", architecture="sm_90", lever="clusters", steps=1)
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
    """Lines of other devices, other operations and single steps are not shown."""
    task = Task(name="t", source="class Model:\n    def forward(self, x):\n        return x @ x\n")
    others = [
        replace(LESSON, **change)
        for change in ({"architecture": "sm_80"}, {"operation": "conv"}, {"gains": (1.0,)})
    ]

    lines = lesson_lines(task, Reference(eager_us=1.0, device=H100), [LESSON, *others])
    assert f"- {LESSON.line}" == lines[1]
    assert 2 == len(lines)
    assert [] == lesson_lines(task, Reference(eager_us=1.0), [LESSON])


def test_architectures_are_named_as_cards_name_them() -> None:
    """A card by its capability, a processor by its best vector flag."""
    assert "sm_90" == architecture_of(H100)
    assert "amx_tile" == architecture_of(
        Device(facts={"vector": "512 bits, avx2 avx512f amx_tile"})
    )
    assert "cpu" == architecture_of(Device())
