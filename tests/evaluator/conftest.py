"""One judge for all tests of this folder, which are about what it survives."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType

import msgspec
import pytest
from evaluator_samples import LIMITS, TASK, descendants, settles, wrong_candidate

from actors.evaluator.judge import Judge
from protocol.values import Task, Verdict


@pytest.fixture(scope="session")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    made = Judge("cpu", LIMITS, tmp_path_factory.mktemp("scratch") / "judge")
    yield made
    made.close()


@pytest.fixture(scope="session")
def patient_judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    """A judge for tests that are about no limit: a busy machine changes no outcome."""
    limits = msgspec.structs.replace(LIMITS, import_s=20.0, check_s=20.0)
    made = Judge("cpu", limits, tmp_path_factory.mktemp("scratch") / "patient-judge")
    yield made
    made.close()


@pytest.fixture(scope="session")
def task() -> Task:
    return Task(name="small", source=TASK, checks=3)


@pytest.fixture
def judged(judge: Judge, task: Task) -> Iterator[Callable[[str], Verdict]]:
    """Judge a candidate; afterwards none of its processes is left, and the zygote is the same."""

    def run(source: str) -> Verdict:
        verdict = judge.judge(task, source)
        assert isinstance(verdict, Verdict)
        return verdict

    if judge.zygote_pid is None:
        run(wrong_candidate())  # starts the reference fixture: later processes are the candidate's
    before = descendants(os.getpid())
    zygote, folders = judge.zygote_pid, set(judge.scratch.root.iterdir())
    yield run
    assert settles(os.getpid(), before)
    assert set(judge.scratch.root.iterdir()) == folders  # those of the warm tasks
    assert judge.zygote_pid == zygote


@pytest.fixture(scope="session")
def torch() -> ModuleType:
    """torch in the test's own process, for code that runs in children otherwise."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns where numpy is not installed
        import torch

    return torch
