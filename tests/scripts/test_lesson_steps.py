"""The steps of a stored run, from which lessons are mined."""

from __future__ import annotations

from pathlib import Path

from supervisor_sample import Sample

from actors.agents.cards.lessons import mine
from scripts.tables.lesson_steps import steps_of_run

WGMMA = frozenset(["wgmma"])


def test_a_step_of_a_stored_run_is_read_from_its_sources(tmp_path: Path) -> None:
    """The parent's source and time, and what the attempt's own source adds to it."""
    sample = Sample(tmp_path)
    sample.db.execute("UPDATE node SET source = '// wgmma', advice = 'By wgmma.' WHERE number = 3")
    sample.db.close()
    steps = {one.added: one for one in steps_of_run(tmp_path) if one.added}
    assert [WGMMA] == list(steps)
    (lesson,) = mine(steps.values())
    assert 1 == len(lesson.gains)
