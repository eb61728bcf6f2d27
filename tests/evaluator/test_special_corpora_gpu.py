"""The corpora with a task of their own, on a card: what holds on a host holds there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import special_corpora
from corpus.scene import JUDGEMENTS, is_credited

from actors.evaluator.judge import Judge
from protocol.settings import Limits
from protocol.values import Task, Verdict

pytestmark = pytest.mark.gpu

NAMES = sorted(path.parent.name for path in special_corpora.CORPORA.glob("*/task.py"))
CASES = [
    pytest.param(name, path, id=f"{name}-{path.parent.name}-{path.stem}")
    for name in NAMES
    if name not in ("cuda", "streams_not_joined")  # judged by tests of their own
    for path in sorted((special_corpora.CORPORA / name).glob("ho*/*.py"))
]


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    judge = Judge("cuda", Limits(time_s=1.5), tmp_path_factory.mktemp("card") / "judge")
    yield judge
    judge.close()


@pytest.mark.parametrize(("name", "path"), CASES)
def test_a_candidate_is_judged_as_on_a_host(card: Judge, name: str, path: Path) -> None:
    """An honest one is correct; a hostile one that seems faster is not, or not three times."""
    source = special_corpora.task_source(name)
    task = Task(name=name, source=source, device="cuda", backward=name == "training")
    candidate = path.read_text(encoding="utf-8")
    verdict = card.judge(task, candidate)
    assert isinstance(verdict, Verdict)
    if path.parent.name == "honest":
        assert verdict.is_correct, verdict
        return
    for _again in range(JUDGEMENTS - 1):
        if not is_credited(verdict):
            break
        verdict = card.judge(task, candidate)
        assert isinstance(verdict, Verdict)
    assert not is_credited(verdict), verdict
