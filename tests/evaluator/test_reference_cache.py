"""References of several tasks beside each other: loaded once, and no candidate pays for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from evaluator_samples import TASK, wrong_candidate

from actors.evaluator.build.build_stage import BuildResult
from actors.evaluator.ipc.card_memory import PARAMETER_COPIES, TaskBytes
from actors.evaluator.ipc.orders import Confinement
from actors.evaluator.judge import Judge
from actors.evaluator.reference import reference_cache
from actors.evaluator.reference.fixture import IDLE_BYTES, ReferenceFixture, TaskProblem
from actors.evaluator.release_stage import ReleaseStage
from actors.evaluator.sandbox.child_failures import CandidateFault
from actors.evaluator.session import DeviceSession
from protocol.release import Release
from protocol.values import Outcome, Reference, Task, Verdict

GIB = 1 << 30
BUILDS = "from torch.utils.cpp_extension import load_inline\n"
CARD_141, CARD_80 = 139 * GIB, 79 * GIB


def task_named(name: str) -> Task:
    return Task(name=name, source=TASK, checks=3)


def fixture_of(name: str, size_gib: float, free: int, parameters_gib: float = 0.0) -> Any:
    """Return what the rule reads of a fixture."""
    size = int(size_gib * GIB)
    return SimpleNamespace(
        task=task_named(name),
        on_host=False,
        task_bytes=TaskBytes(inputs=size, outputs=size),
        idle_bytes=IDLE_BYTES + int(PARAMETER_COPIES * parameters_gib * GIB),
        facts=SimpleNamespace(free_bytes=free),
    )


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch, patient_judge: Judge) -> Iterator[list[str]]:
    """The names of the tasks whose references are loaded, in order."""
    names: list[str] = []
    original = ReferenceFixture.open

    def noted(self: ReferenceFixture, *arguments: Any) -> object:
        names.append(self.task.name)
        return original(self, *arguments)

    monkeypatch.setattr(ReferenceFixture, "open", noted)
    patient_judge.session.references.evict()
    yield names
    patient_judge.session.references.evict()


@pytest.mark.long
def test_tasks_in_turn_are_loaded_once_each(patient_judge: Judge, opened: list[str]) -> None:
    """As in a run of many tasks: one is measured while the candidate of another is built."""
    tasks = [task_named(name) for name in "abc"]
    for task in tasks:
        assert isinstance(patient_judge.measure(task), Reference)
    for task in tasks:
        verdict = patient_judge.judge(task, wrong_candidate())
        assert isinstance(verdict, Verdict)
        assert verdict.verdict is Outcome.WRONG
    assert opened == ["a", "b", "c"]


@pytest.mark.long
def test_no_more_tasks_stay_than_are_under_way(patient_judge: Judge, opened: list[str]) -> None:
    """The one that was used least recently ends, with its folder."""
    for name in "abcd":
        patient_judge.measure(task_named(name))
    patient_judge.measure(task_named("b"))
    patient_judge.measure(task_named("a"))
    assert opened == ["a", "b", "c", "d", "a"]
    assert len(list(patient_judge.scratch.root.iterdir())) == reference_cache.MAX_TASKS


@pytest.mark.long
def test_large_tasks_do_not_stay(
    patient_judge: Judge, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that needs the memory has it: the others end before it is judged."""
    monkeypatch.setattr(reference_cache, "HOST_BYTES", 0)
    for name in "aba":
        patient_judge.measure(task_named(name))
    assert opened == ["a", "b", "a"]


@pytest.mark.long
def test_a_cancelled_timing_leaves_nothing_to_other_tasks(
    patient_judge: Judge, opened: list[str]
) -> None:
    """The memory of its blocks goes with the reference when another task comes."""
    patient_judge.measure(task_named("a"))
    left = patient_judge.session.references.fixture_of(task_named("a"))
    assert isinstance(left, ReferenceFixture)
    left.has_timing_memory = True
    patient_judge.measure(task_named("b"))
    assert not Path(left.confinement.folder).exists()  # it has ended
    patient_judge.measure(task_named("a"))
    assert opened == ["a", "b", "a"]


def test_a_candidate_short_of_memory_is_judged_again_alone(
    patient_judge: Judge, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What other tasks' references hold of a card is no fault of the candidate."""
    original, warm = DeviceSession._judge, []
    references = patient_judge.session.references

    def short_at_first(self: DeviceSession, *arguments: Any) -> object:
        verdict = original(self, *arguments)
        assert isinstance(verdict, Verdict)
        warm.append(len(references._fixtures))
        is_short = len(warm) == 1
        return (
            msgspec.structs.replace(verdict, verdict=Outcome.OUT_OF_MEMORY) if is_short else verdict
        )

    monkeypatch.setattr(DeviceSession, "_judge", short_at_first)
    for name in "ab":
        patient_judge.measure(task_named(name))
    verdict = patient_judge.judge(task_named("b"), wrong_candidate())
    assert isinstance(verdict, Verdict)
    assert verdict.verdict is Outcome.WRONG
    assert warm == [2, 1]
    assert opened == ["a", "b"]


@pytest.mark.long
def test_a_build_that_ran_out_of_memory_is_not_repeated(
    patient_judge: Judge, opened: list[str], tmp_path: Path
) -> None:
    """Compilers use no memory of a card: a second build would hold the device for nothing."""
    built = BuildResult(
        confinement=Confinement(folder=str(tmp_path), environment={}),
        fault=CandidateFault(outcome=Outcome.CRASHED, stage="import", reason="killed"),
        ran_out_of_memory=True,
    )
    for name in "ab":
        patient_judge.measure(task_named(name))
    verdict = patient_judge.judge(task_named("b"), f"{BUILDS}{wrong_candidate()}", built=built)
    assert isinstance(verdict, Verdict)
    assert verdict.verdict is Outcome.OUT_OF_MEMORY
    patient_judge.measure(task_named("a"))
    assert opened == ["a", "b"]


def test_a_winner_is_checked_without_other_tasks_beside_it(
    patient_judge: Judge, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drop-in checks take second instances, gradients and larger batches of a card's memory."""
    beside: list[int] = []
    references = patient_judge.session.references

    def checked(_self: ReleaseStage, *_arguments: Any) -> Release:
        beside.append(len(references._fixtures) - 1)
        return Release(judged=references._fixtures[-1].judged)

    monkeypatch.setattr(ReleaseStage, "run", checked)
    for name in "ab":
        patient_judge.measure(task_named(name))
    patient_judge.release(task_named("a"), wrong_candidate())
    assert beside == [0]
    assert opened == ["a", "b"]


def test_the_parameters_of_the_judged_task_count_too() -> None:
    """Judging takes ten copies of them: of 3 GiB each, two tasks want 68 GiB of a card of 80."""
    small, large = (
        [fixture_of(name, 0.1, CARD_80, parameters) for name in "ab"] for parameters in (0.5, 3.0)
    )
    assert reference_cache.fit_together(small)
    assert not reference_cache.fit_together(large)


def test_a_task_that_is_too_slow_is_not_begun_again(
    patient_judge: Judge, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would wait for its whole limit a second time, and end the references of other tasks."""
    patient_judge.measure(task_named("a"))

    def slow(self: ReferenceFixture, *_arguments: Any) -> TaskProblem:
        opened.append(self.task.name)
        return TaskProblem(reason="the task's import took more than 60 s", final=True)

    with monkeypatch.context() as patch:
        patch.setattr(ReferenceFixture, "open", slow)
        assert isinstance(patient_judge.measure(task_named("b")), TaskProblem)
    patient_judge.measure(task_named("a"))
    assert opened == ["a", "b"]


@pytest.mark.parametrize(
    ("sizes", "free", "stay"),
    [
        ((0.1, 0.2, 0.1), CARD_141, True),
        ((0.1, 0.2), CARD_80, True),
        ((6.0, 6.0), CARD_141, True),  # judging one takes 58 GiB; the other holds its contexts
        ((6.0, 6.0), CARD_80, False),
        ((8.0, 8.0, 8.0), CARD_141, False),
    ],
)
def test_tasks_stay_where_judging_one_leaves_much_of_the_card(
    sizes: tuple[float, ...], free: int, stay: bool
) -> None:
    """Their sizes decide, in GiB of inputs and of outputs."""
    fixtures = [fixture_of(str(place), size, free) for place, size in enumerate(sizes)]
    assert reference_cache.fit_together(fixtures) is stay
    assert reference_cache.fit_together(fixtures[:1])
