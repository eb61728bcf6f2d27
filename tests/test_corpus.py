"""The corpus: hostile candidates are not credited, honest ones are correct, none damages the judge.

One warm judge judges all files.  At the end the plain candidate is judged, so that damage to later
candidates shows; so it is after each candidate that has crashed or hung.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from corpus.scene import Scene, candidates, category, scene

from protocol.values import Outcome

NEEDS_NAMESPACES = ("parent compromise", "fork bomb", "persistence", "filler", "orphans")
PATHS = candidates("cpu")


@pytest.fixture(scope="module")
def stage() -> Iterator[Scene]:
    with scene("cpu") as started:
        started.start()
        yield started
        assert () == started.aftermath()


def is_last_of_category(path: Path) -> bool:
    number = PATHS.index(path)
    return number + 1 == len(PATHS) or category(PATHS[number + 1]) != category(path)


# Categories that only `make test-long` judges: most of them are held in the gate by tests of single
# verdicts in tests/evaluator, or are close to another category.
LONG_CATEGORIES = {
    "hostile": (
        *("constant output", "crash", "decoy", "fake tensor", "fork bomb", "hang", "orphans"),
        *("out of bounds", "precision", "races"),
    ),
    "honest": (
        *("autograd", "blocks", "buffers", "constants", "exceptions", "files", "hooks", "library"),
        "modes",
        *("names", "noise", "plain", "precision", "slow start", "torch.jit", "workspace"),
    ),
}


def is_in_gate(path: Path) -> bool:
    """Whether `make test` judges this candidate."""
    return is_last_of_category(path) and category(path) not in LONG_CATEGORIES[path.parent.name]


# One candidate of each other category is in the gate; all the rest are slow tests.
PARAMETERS = [
    pytest.param(
        path,
        id=f"{path.parent.name}-{path.stem}",
        marks=() if is_in_gate(path) else (pytest.mark.long,),
    )
    for path in PATHS
]


@pytest.mark.parametrize("path", PARAMETERS)
def test_candidates_are_judged_as_they_deserve(stage: Scene, path: Path) -> None:
    """An honest candidate is correct, a hostile one is not credited, and neither does damage.

    No process and no file is left, the verdict does not contain the canary, no listener is called,
    the zygote is the same process as before, and later candidates are judged as before.
    """
    is_hostile = path.parent.name == "hostile"
    if is_hostile and category(path) in NEEDS_NAMESPACES and stage.judge.level < 3:
        pytest.skip("without namespaces it would damage the machine that runs this test")
    judged = stage.judge_candidate(path)
    assert () == judged.damage
    assert judged.verdict is not None, judged.text
    if judged.is_honest:
        if judged.verdict.verdict is Outcome.TIMED_OUT:  # limits are short, the machine may be busy
            judged = stage.judge_candidate(path)
            assert judged.verdict is not None, judged.text
        assert judged.verdict.is_correct, judged.text
    else:
        assert not judged.is_credited, judged.text
