"""The account of where a verdict's seconds go."""

from __future__ import annotations

from actors.evaluator.ipc.stage_seconds import StageSeconds


def test_each_second_is_counted_once_for_the_innermost_stage() -> None:
    """A reader can add up what is printed, and sees which answers were waited for."""
    clock = [0.0]
    stages = StageSeconds(lambda: clock[0])

    def spend(seconds: float) -> None:
        clock[0] += seconds

    spend(1.0)
    with stages.stage("timing"):
        spend(2.0)
        with stages.waiting("FillSlots"):
            spend(4.0)
        with stages.stage("other kinds"), stages.waiting("FillSlots"):
            spend(8.0)
        spend(16.0)
    spent = {stage: s for stage, s in stages.take().items() if s}
    assert spent == {
        "rest": 1.0,
        "timing": 18.0,
        "timing: FillSlots": 4.0,
        "other kinds: FillSlots": 8.0,
    }
    spend(0.5)
    assert {"rest": 0.5} == stages.take()
