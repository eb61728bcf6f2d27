"""The corpus: cheats are not believed, honest oddities are, and nobody hurts the judge.

One warm judge for all files; a category ends with an honest candidate, so that what one leaves
behind for the next is seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from corpus.scene import Scene, candidates, category, scene

from protocol.values import Outcome

OUTSIDE = ("parent compromise", "fork bomb", "persistence", "filler", "orphans")
PATHS = candidates("cpu")


@pytest.fixture(scope="module")
def stage() -> Iterator[Scene]:
    with scene("cpu") as made:
        made.start()
        yield made


def last_of_its_kind(path: Path) -> bool:
    place = PATHS.index(path)
    return place + 1 == len(PATHS) or category(PATHS[place + 1]) != category(path)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_candidates_are_judged_as_they_deserve(stage: Scene, path: Path) -> None:
    """An honest candidate is correct, a hostile one is not credited, and neither does harm.

    No process and no file is left, the canary is nowhere in the verdict, nobody calls what listens,
    the zygote is the one that it was; whoever comes next is judged as before.
    """
    if path.parent.name == "hostile" and category(path) in OUTSIDE and stage.judge.level < 3:
        pytest.skip("without namespaces it would hurt whoever runs this test")
    judged = stage.look(path)
    assert () == judged.damage
    assert judged.verdict is not None, judged.words
    if judged.honest:
        if judged.verdict.verdict is Outcome.TIMED_OUT:  # limits are short, the machine may be busy
            judged = stage.look(path)
            assert judged.verdict is not None, judged.words
        assert judged.verdict.is_correct, judged.words
    else:
        assert not judged.credited, judged.words
    if not judged.honest and last_of_its_kind(path):
        assert () == stage.unfair()
