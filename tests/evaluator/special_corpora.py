"""Corpora with a task of their own (views, training, distributions): their candidates as cases."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from actors.evaluator.judge import Judge
from protocol.values import Outcome, Task, Verdict

CORPORA = Path(__file__).parent.parent / "corpus"


def task_source(corpus: str) -> str:
    """Return the source of the task that all candidates of `corpus` claim to compute."""
    return (CORPORA / corpus / "task.py").read_text(encoding="utf-8")


def judged(judge: Judge, corpus: str, candidate: Path | str) -> Verdict:
    """Return the verdict of a candidate on the task of `corpus`, on a host.

    `candidate`: a path, which may begin at the corpus.
    """
    source = (CORPORA / corpus / candidate).read_text(encoding="utf-8")
    verdict = judge.judge(Task(name=corpus, source=task_source(corpus)), source)
    assert isinstance(verdict, Verdict), verdict
    return verdict


def rightly_judged(judge: Judge, corpus: str, candidate: Path) -> str:
    """Require that an honest candidate is correct and a hostile one `wrong`; return why it is."""
    verdict = judged(judge, corpus, candidate)
    if candidate.parent.name == "honest":
        assert verdict.is_correct, verdict
        return ""
    assert verdict.verdict is Outcome.WRONG, verdict
    assert verdict.reason, verdict
    return verdict.reason


def candidates(corpus: str, in_gate: Collection[str]) -> list[Any]:
    """Return the candidates, honest and hostile; those not named in `in_gate` are marked long."""
    paths = sorted((CORPORA / corpus).glob("ho*/*.py"))
    unknown = set(in_gate) - {path.stem for path in paths}
    assert not unknown, f"no candidates of {corpus}: {unknown}"
    return [
        pytest.param(
            path,
            id=f"{path.parent.name}-{path.stem}",
            marks=() if path.stem in in_gate else (pytest.mark.long,),
        )
        for path in paths
    ]
